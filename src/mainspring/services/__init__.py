"""The loops of a process. Each waits for a wake-up or a deadline, takes a batch, lets core decide, and writes the
result.

`loop` is their common shape. `node` starts and stops all loops of a process, `runtime` gives them a thread,
`supervisor` restarts those that fail, and `activity` reports what they do. `scheduler` plans, `worker` executes,
`chores` keep the fleet in order.
"""
