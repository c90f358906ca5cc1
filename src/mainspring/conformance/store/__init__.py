"""The suite that every store passes, one file per subject."""
