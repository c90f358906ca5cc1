"""An app whose tasks make spans of their own. Run as a program, it submits within a span of its own."""

from __future__ import annotations

import asyncio
import logging
import sys

from opentelemetry import trace

from mainspring import Mainspring, Retry, every

app = Mainspring(name="traced")
tracer = trace.get_tracer("user")


@app.task
async def on_loop() -> None:
    """An async function."""
    logging.getLogger("user").warning("seen")
    with tracer.start_as_current_span("inside on_loop"):
        await asyncio.sleep(0)


@app.task
def in_thread() -> None:
    """A plain function."""
    with tracer.start_as_current_span("inside in_thread"):
        pass


@app.task(timeout="60s")
def in_process() -> None:
    """A plain function with a deadline: it runs in a process that can be killed."""
    with tracer.start_as_current_span("inside in_process"):
        pass


@app.task(retry=Retry(0))
async def fails() -> None:
    """It fails."""
    raise ValueError("on purpose")


@app.job(every("1s"))
async def tick() -> None:
    """A job: its plan starts the trace."""


async def main() -> None:
    """Submit one run of each task, all in one trace."""
    async with app:
        with tracer.start_as_current_span("user asks") as span:
            for task in (on_loop, in_thread, in_process, fails):
                await app.submit(task)
            await app.submit("command", {"argv": [sys.executable, "-c", "import os; print(os.environ['TRACEPARENT'])"]})
        context = span.get_span_context()
        print(f"{context.trace_id:032x} {context.span_id:016x}")


if __name__ == "__main__":
    asyncio.run(main())
