"""Executes containers by podman or docker on the worker's host. The container ends with its attempt."""

from __future__ import annotations

import os
import re
import tempfile
from typing import Final

from mainspring.core.model import RunOptions
from mainspring.core.tasks.containers import ContainerSpec
from mainspring.executor import AttemptContext, Outcome
from mainspring.executors.containers.request import (
    ContainerRefused,
    complete,
    environment_of,
    judge,
    name_of,
    read_spec,
)
from mainspring.executors.failures import failed_by
from mainspring.executors.launching.order import Launch
from mainspring.executors.programs.confinement import environment
from mainspring.executors.programs.output import Output
from mainspring.executors.programs.program import Ending, Launcher, NotStarted, run_program
from mainspring.settings import Settings

_ENGINE_FAILED: Final = 125
"""The exit code of podman and docker when they could not run the container."""
_KILLED: Final = 137
_OOM_FILE: Final = "oom"
"""conmon, podman's monitor of a container, creates this file once the kernel reports that the container is out of
memory. Podman before version 5 looks for it elsewhere, and so never reports OOMKilled. conmon creates it where podman
was started: each container has its own folder for that."""
_PULLS: Final = {"Always": "always", "IfNotPresent": "missing", "Never": "never"}
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|[kKMGTPE]i?|)")
_UNITS: Final = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18} | {
    f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)
}
_OF_KUBERNETES: Final = ("namespace", "service_account", "node_selector", "ttl_after_finished")


class EngineExecutor:
    """Runs one container per attempt, in the foreground. A container of the same run that a killed worker left on this
    host is removed first; on another host it would go on until it ends by itself."""

    def __init__(self, launcher: Launcher, settings: Settings) -> None:
        self._launcher = launcher
        self._settings = settings
        self._engine = settings.containers or ""

    async def run(self, attempt: AttemptContext) -> Outcome:
        name = name_of(attempt)
        output = Output(attempt, self._settings.output_limit)
        try:
            spec = read_spec(attempt, self._settings)
            words, env = write_arguments(name, spec, environment_of(attempt))
        except ContainerRefused as refusal:
            return failed_by("ContainerRefused", str(refusal), final=True)
        if unused := [each for each in _OF_KUBERNETES if getattr(spec, each)]:
            attempt.write("log", f"{self._engine} ignores {', '.join(unused)}")
        await self._call(attempt, ["rm", "--force", name])
        try:
            ending, killed = await self._execute(attempt, name, words, env, output)
        except NotStarted as error:
            return failed_by("ContainerRefused", f"{self._engine}: {error.strerror or 'it could not be started'}")
        finally:
            await complete(self._call(attempt, ["rm", "--force", name]))
        line = output.last_lines.get("stderr") or output.last_lines.get("stdout", b"")
        if ending.code == _ENGINE_FAILED:
            return failed_by("ContainerNotRun", f"{self._engine}: {line.decode('utf-8', 'replace')}", "ContainerFailed")
        code = 128 - ending.code if ending.code < 0 else ending.code
        return judge(code, line, out_of_memory=killed, memory=spec.resources.limits.get("memory"))

    async def _execute(
        self, attempt: AttemptContext, name: str, words: list[str], env: dict[str, str], output: Output
    ) -> tuple[Ending, bool]:
        """How the container ended, and whether it was killed for memory."""
        with tempfile.TemporaryDirectory(prefix="mainspring-") as folder:
            order: Launch = {
                "argv": [self._engine, "run", *words], "env": environment(None, None, env), "cwd": folder,
            }  # fmt: skip
            ending = await run_program(self._launcher, order, attempt, output)
            killed = ending.code == _KILLED and (
                _OOM_FILE in os.listdir(folder) or await self._is_out_of_memory(attempt, name)
            )
        return ending, killed

    async def _is_out_of_memory(self, attempt: AttemptContext, name: str) -> bool:
        said = await self._call(attempt, ["inspect", "--format", "{{.State.OOMKilled}}", name])
        return said == b"true"

    async def _call(self, attempt: AttemptContext, words: list[str]) -> bytes:
        """The last line that the engine prints; nothing of it goes to the run."""
        quiet = AttemptContext(attempt.claim, RunOptions())
        output = Output(quiet, self._settings.output_limit)
        order = environment(None, None, {})
        try:
            await run_program(
                self._launcher, {"argv": [self._engine, *words], "env": order, "cwd": None}, quiet, output
            )
        except NotStarted:
            return b""  # The call that runs the container says why.
        return output.last_lines.get("stdout", b"").strip()


def write_arguments(name: str, spec: ContainerSpec, added: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """What follows `podman run`, and the environment that it needs. Values go through the environment, where other
    users cannot read them, as they can in arguments."""
    env: dict[str, str] = dict(added)
    for variable, value in spec.env.items():
        if not isinstance(value, str):
            raise ContainerRefused(
                f"{variable} is a key of a Secret of Kubernetes, which podman and docker cannot read: "
                'write {"$secret": NAME} for a secret of the worker'
            )
        env[variable] = value
    words = ["--name", name, "--label", "mainspring=run"]
    for variable in env:
        words += ["--env", variable]
    if spec.cwd is not None:
        words += ["--workdir", spec.cwd]
    if spec.pull is not None:
        words += ["--pull", _PULLS[spec.pull]]
    words += _write_resources(spec)
    if spec.command:
        words += ["--entrypoint", spec.command[0]]
    return [*words, spec.image, *spec.command[1:], *spec.args], env


def _write_resources(spec: ContainerSpec) -> list[str]:
    limits, requests = spec.resources.limits, spec.resources.requests
    words = []
    if "cpu" in limits:
        words += ["--cpus", f"{_read_quantity(limits['cpu']):g}"]
    if "cpu" in requests:
        words += ["--cpu-shares", str(max(round(_read_quantity(requests["cpu"]) * 1024), 2))]
    if "memory" in limits:
        words += ["--memory", f"{round(_read_quantity(limits['memory']))}b"]
    if "memory" in requests:
        words += ["--memory-reservation", f"{round(_read_quantity(requests['memory']))}b"]
    return words


def _read_quantity(text: str) -> float:
    """A quantity of Kubernetes, as in `500m` or `1.5Gi`."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ContainerRefused(f"{text!r} is not a quantity: write it like 500m, 2 or 1.5Gi")
    number, unit = float(match[1]), match[2]
    return number / 1000 if unit == "m" else number * _UNITS.get(unit, 1)
