"""Bugs planted on purpose, to test the tests: `planted` lists them, `mistakes` is the wrong code."""
