"""The child's side of `process`: `python -m mainspring.executors.child FD PARENT` reads one order from stdin and runs
it."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import signal
import sys
from types import ModuleType
from typing import Any

import msgspec

from mainspring.app import Mainspring
from mainspring.context import RunContext
from mainspring.executor import Outcome, plain
from mainspring.executors.failures import failed
from mainspring.executors.function import call
from mainspring.executors.process import Message, Order
from mainspring.task import Task

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tell the parent how it went; the exit code is 0 whenever the parent was told."""
    die_with_parent(int(sys.argv[2]))
    # Buffered, because it writes whole: the function's own threads may talk at the same time.
    channel = os.fdopen(int(sys.argv[1]), "wb")
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.path[:] = order.path

    def tell(message: Message) -> None:
        channel.write(msgspec.json.encode(message) + b"\n")
        channel.flush()

    context = RunContext(
        order.claim,
        order.deadline,
        lambda _, text: tell(Message(log=plain(text))),
        lambda fraction, note: tell(Message(progress=fraction, note=plain(note))),
    )
    outcome = run(order, context)
    sys.stdout.flush()
    sys.stderr.flush()
    tell(Message(outcome=outcome))
    # Threads that the function left behind would keep this process for ever.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(1)


def die_with_parent(parent: int) -> None:
    """If the worker is killed, so is this process: nobody would hear its result. Linux only; elsewhere it ends by
    itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def run(order: Order, context: RunContext) -> Outcome:
    """Run the function that the order names."""
    try:
        task = find_task(load(order), order.claim.task)
    except BaseException as error:
        return failed(error)
    return call(task, order.claim.args, context)


def load(order: Order) -> ModuleType:
    """The module of the function. What was `__main__` there must not run its main part here, so it goes by another
    name."""
    if order.module != "__main__" and importlib.util.find_spec(order.module):
        return importlib.import_module(order.module)
    name = "__mainspring_main__" if order.module == "__main__" else order.module
    spec = importlib.util.spec_from_file_location(name, order.file or "")
    if spec is None or spec.loader is None:
        raise RuntimeError(f"module {order.module} cannot be imported in a child process: put the task into a file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def find_task(module: ModuleType, name: str) -> Task[..., Any]:
    """The task of that name, of an app that the module holds or decorates its functions with."""
    for value in vars(module).values():
        if isinstance(value, Task) and value.name == name:
            return value
        if isinstance(value, Mainspring) and name in value.tasks:
            return value.tasks[name]
    raise RuntimeError(f"task {name} is not in module {module.__name__}: define it at the top level")


if __name__ == "__main__":
    main()
