"""Executes functions in processes that can be killed: `pool` is the worker's side, `pool_process` one process of it,
`pool_child` what runs in that process, `messages` what the two exchange."""
