"""How fast Mainspring is on one SQLite file, beside its embedded peers: `python -m bench`."""
