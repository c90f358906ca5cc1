"""All executors of a worker: who executes which task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.executor import Executor
from mainspring.executors.batch import BatchExecutor
from mainspring.executors.command import COMMAND, CommandExecutor
from mainspring.executors.function import FunctionExecutor, Threads, needs_process
from mainspring.executors.http import HTTP, HttpExecutor
from mainspring.executors.pool.pool import ProcessExecutor
from mainspring.executors.programs.host import Lookout
from mainspring.executors.programs.program import Launcher
from mainspring.executors.secrets import Discreet, Vault
from mainspring.sdk.task import Task
from mainspring.settings import Settings


class Staff:
    """Called with the name of a task, it gives the executor."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]], settings: Settings) -> None:
        self._tasks = tasks
        self._launcher = Launcher()
        lookout = Lookout(settings.run_as, settings.cgroup, settings.run_users)
        vault = Vault(settings.secrets)
        self._process = ProcessExecutor(tasks, self._launcher, lookout, settings)
        threads = Threads(settings.concurrency)
        self._functions = Discreet(FunctionExecutor(tasks, threads, self._process, settings.output_limit), vault)
        self._special: dict[str, Executor] = {
            COMMAND: Discreet(CommandExecutor(self._launcher, lookout, settings), vault),
            HTTP: Discreet(HttpExecutor(settings), vault),
        }
        for name, task in tasks.items():
            if task.defaults.batch is not None:
                self._special[name] = Discreet(BatchExecutor(task, settings.concurrency, threads), vault)

    def __call__(self, task: str) -> Executor:
        return self._special.get(task, self._functions)

    def prepare(self) -> None:
        """Start what should not have to be started when the first run comes. On the loop on which tasks run."""
        if any(needs_process(task, task.defaults.options) for task in self._tasks.values()):
            self._process.pool().prepare()

    def close(self) -> None:
        """Let go of all processes. On the loop on which tasks run."""
        self._process.close()
        self._launcher.close()
