"""What it costs to execute: the measured programs of `python -m bench.executors`."""
