"""How fast Mainspring is, beside its peers: `python -m bench`, and the rooms' own commands in `bench/README.md`."""
