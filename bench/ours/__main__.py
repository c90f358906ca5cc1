"""`python -m bench.ours MEASURE PARAMS`."""

from bench.harness.script import serve
from bench.ours import drain, idle, latency, lateness, submit

if __name__ == "__main__":
    serve(
        {
            "submit": submit.single,
            "submit_together": submit.together,
            "bulk": submit.bulk,
            "drain": drain.drain,
            "flow": drain.flow,
            "latency": latency.within,
            "latency_floor": latency.floor,
            "latency_across": latency.across,
            "send": latency.send,
            "lateness": lateness.lateness,
            "store_idle": idle.store,
            "idle": idle.stay,
        }
    )
