"""Executes functions in processes that can be killed: `pool` is the worker's side, `pool_process` one process of it,
`pool_child` the main program of that process, `messages` what the two exchange."""
