"""Mainspring's side: each measure in a process of its own, by the public SDK."""
