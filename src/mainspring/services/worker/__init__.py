"""The loops of a worker.

`claimer` takes runs (`broker_source` from a broker), `runner` executes them, `reporter` reports their results. `claims`
knows what is held, `heartbeat` renews it, `fence` stops work whose claim has expired. `loop_monitor` detects tasks that
block the event loop, `worker_breaker` a worker that cannot execute. `worker` puts them together.
"""
