"""How runs end: reports, recovery, retention."""
