"""`python -m bench [--store sqlite|postgres] [--quick] [--awake] [--only NAME ...] [--peers [NAME ...]] [--folder
PATH]`: see `bench/README.md`."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

from bench.cluster import main as cluster
from bench.embedded import main as embedded
from bench.harness.awake import awake
from bench.harness.running import RESULTS, Failed

STORES = {"sqlite": embedded.MEASURES, "postgres": cluster.MEASURES}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast Mainspring is, beside its peers.")
    parser.add_argument("--store", choices=STORES, default="sqlite", help="embedded, or with servers of its own")
    parser.add_argument("--quick", action="store_true", help="a quick look; too small to quote")
    parser.add_argument("--awake", action="store_true", help="keep the processors from sleeping: for latency, as root")
    measures = "; ".join(f"{store}: {', '.join(measures)}" for store, measures in STORES.items())
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {measures}")
    parser.add_argument(
        "--peers", nargs="*", metavar="NAME", help=f"with --store postgres: none, or of {', '.join(cluster.PEERS)}"
    )
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where to write data: on the disk that counts")
    arguments = parser.parse_args()
    if unknown := set(arguments.only or ()) - set(STORES[arguments.store]):
        parser.error(f"--store {arguments.store} measures no {', '.join(sorted(unknown))}")
    if unknown := set(arguments.peers or ()) - set(cluster.PEERS):
        parser.error(f"there is no peer {', '.join(sorted(unknown))}")
    return arguments


def main() -> int:
    """The exit code: 1 if one of our own figures is void."""
    arguments = _arguments()
    # Ended from outside, it still cleans up after itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with awake() if arguments.awake else nullcontext():
            if arguments.store == "sqlite":
                return embedded.measure(arguments.only, arguments.folder, arguments.quick)
            return cluster.measure(arguments.only, arguments.folder, arguments.quick, arguments.peers)
    except Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
