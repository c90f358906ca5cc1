"""What the processes of a run execute: the app (`work`) and the `client`.

`orders` is what they are given, `recording` and `ledger` what they record, on one clock (`timing`). `halts` stops a
process at a chosen moment; `planted` are bugs.
"""
