"""Zones in tests come from where the program takes them: the `tzdata` package, not the system."""

import zoneinfo

zoneinfo.reset_tzpath(())
