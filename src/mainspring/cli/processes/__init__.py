"""Commands that start long-lived processes: `up`, `worker`, `server`.

`live` runs them, `lines` prints what they do, `logs` sets up logging, `reload` and `succession` start them anew.
"""
