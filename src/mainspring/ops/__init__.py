"""Operating a running system: what an operator does beside it, built on the ports and the settings."""
