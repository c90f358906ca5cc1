"""`python -m bench.peers MODULE MEASURE PARAMS`: a peer's measure in a process of its own.

The peer's module is imported, not run: many store functions by the name of their module, which must be the same in all
processes.
"""

import importlib
import logging
import sys

from bench.harness.script import serve

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    serve(importlib.import_module(f"bench.peers.{sys.argv.pop(1)}").MEASURES)
