"""The processes of a run, from outside.

`cluster` starts, harms and replaces them, `processes` describes each, `backing` is their store. `faults` are drawn from
the seed; `directed` hits chosen moments.
"""
