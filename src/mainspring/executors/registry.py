"""All executors of a worker, by task."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.errors import InvalidInput
from mainspring.executor import ExecutableTask, Executor, Leftovers
from mainspring.executors.batch import BatchExecutor
from mainspring.executors.command import COMMAND, CommandExecutor
from mainspring.executors.containers.engine import EngineExecutor
from mainspring.executors.containers.kubernetes import KubernetesExecutor
from mainspring.executors.containers.request import CONTAINER
from mainspring.executors.function import FunctionExecutor, Threads, needs_process
from mainspring.executors.http import HTTP, HttpExecutor
from mainspring.executors.pool.pool import ProcessExecutor
from mainspring.executors.programs.host import HostProbe
from mainspring.executors.programs.program import Launcher
from mainspring.executors.secrets import SecretReader, WithSecrets
from mainspring.settings import Settings


class ExecutorRegistry:
    """Returns the executor of a task when called with its name. `pool_program` is the module that pool processes run:
    it finds tasks in the modules of their authors."""

    def __init__(self, tasks: Mapping[str, ExecutableTask], settings: Settings, pool_program: str) -> None:
        self._tasks = tasks
        self._launcher = Launcher()
        probe = HostProbe(settings.run_as, settings.cgroup, settings.run_users)
        secrets = SecretReader(settings.secrets)
        self._process = ProcessExecutor(tasks, self._launcher, probe, settings, pool_program)
        threads = Threads(settings.concurrency)
        self._functions = WithSecrets(FunctionExecutor(tasks, threads, self._process, settings.output_limit), secrets)
        self._special: dict[str, Executor] = {
            COMMAND: WithSecrets(CommandExecutor(self._launcher, probe, settings), secrets),
            HTTP: WithSecrets(HttpExecutor(settings), secrets),
        }
        self.leftovers: Leftovers | None = None
        """Containers that may have outlived their worker; None for a worker without containers."""
        if settings.containers is not None:
            self._special[CONTAINER] = self._containers(settings, secrets)
        for name, task in tasks.items():
            if task.defaults.batch is not None:
                self._special[name] = WithSecrets(BatchExecutor(task, settings.concurrency, threads), secrets)

    def _containers(self, settings: Settings, secrets: SecretReader) -> Executor:
        if settings.containers in ("podman", "docker"):
            return WithSecrets(EngineExecutor(self._launcher, settings), secrets)
        if not (settings.containers or "").startswith("kubernetes://"):
            remedy = "write kubernetes://NAMESPACE, podman or docker"
            raise InvalidInput("containers", settings.containers, "runs no containers", remedy)
        executor = KubernetesExecutor(settings)
        self.leftovers = executor.leftovers
        return executor

    def __call__(self, task: str) -> Executor:
        return self._special.get(task, self._functions)

    def prepare(self) -> None:
        """Start pool processes before the first run needs them. Must be called on the loop of the tasks."""
        if any(needs_process(task, task.defaults.options) for task in self._tasks.values()):
            self._process.pool().prepare()

    def close(self) -> None:
        """End all pool processes. Must be called on the loop of the tasks."""
        self._process.close()
        self._launcher.close()
