"""The reference pages of the documentation, made from the code: `make reference` writes docs/reference/.

A page is a function that returns its text. `tests/docs/test_reference.py` says when a page is older than the code.
"""

from __future__ import annotations

import html
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import click

import mainspring
from mainspring import errors
from mainspring.api.application import ENDPOINTS
from mainspring.api.openapi import describe_api
from mainspring.api.problems import PREFIX, TITLES, to_problem
from mainspring.cli.lazy import LazyGroup, Verb
from mainspring.cli.main import cli
from mainspring.cli.output.errors import _code
from mainspring.operations.events import ALIASES
from mainspring.operations.jobs.jobs import Jobs
from mainspring.sdk.runs import AppRuns

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "docs" / "reference"
NOTE = "\n\nThis page is made from the code by `make reference`; edit the code, not the page.\n"
EVENTS = {
    "job.created": "a job was stored",
    "job.updated": "a job was changed",
    "job.paused": "a job was paused",
    "job.resumed": "a paused job goes on",
    "job.removed": "a job was removed; its runs and its ledger stay",
    "job.noted": "a reason was given with a change of a job",
    "job.hurried": "a job does not wait for its dependencies, under pressure",
    "firing.fired": "a due instant made runs",
    "firing.skipped": "a due instant made no run; the reason says why",
    "firing.missed": "a due instant passed while no scheduler ran, and the misfire policy does not make up for it",
    "run.submitted": "a run was accepted",
    "run.running": "a worker started an attempt",
    "run.retrying": "an attempt failed; the run is due again later",
    "run.moved": "a run left its region, which did not take it within its region_failover; the reason names both",
    "run.handed_back": "a worker returned a run that it did not finish; this counts as no attempt",
    "run.lost": "a worker died or lost its claim during an attempt",
    "run.cancelling": "a running run was asked to stop",
    "run.succeeded": "the run ended: succeeded",
    "run.failed": "the run ended: failed, with no retry left",
    "run.cancelled": "the run ended: cancelled",
    "run.skipped": "the run ended: skipped; the reason says why",
    "run.noted": "a reason was given when a run was run again",
    "run.hurried": "a run does not wait for what it follows, under pressure",
    "dependency.ready": "a run waits for no other run any more, or an `after` job may fire",
    "worker.started": "a worker registered",
    "worker.draining": "a worker finishes its work and takes nothing new",
    "worker.stopped": "a worker stopped",
    "worker.dead": "a worker sent no heartbeat for too long",
    "queue.paused": "a queue was paused; the reason begins with its name",
    "queue.resumed": "a queue was resumed; the reason begins with its name",
    "leader.elected": "a node began to lead, in a new term",
    "leader.resigned": "a leader gave up its term",
}
"""Every kind of event, and its meaning."""
SERVED = (errors.InvalidInput, errors.NotFound, errors.Conflict, errors.StoreError)
"""The errors that operations raise behind the API; others belong to clients and tasks."""


def cell(text: object) -> str:
    """A text as a cell of a table. A bar within code is an entity: the site would show the backslash of an escape."""

    def escaped(code: re.Match[str]) -> str:
        return f"<code>{html.escape(code[1]).replace('|', '&#124;')}</code>"

    return re.sub(r"`([^`]*\|[^`]*)`", escaped, str(text)).replace("|", "\\|").replace("\n", " ")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown, or nothing where it has no row."""
    lines = ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    head = list(head)
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines]) + "\n\n" if lines else ""


def paragraphs(text: str | None) -> str:
    """A docstring as Markdown. Blocks that click must not rewrap become blocks of code."""
    text = inspect.cleandoc(text or "").strip()
    return re.sub(r"^\x08\n(.*?)(?=\n\n|\Z)", r"```console\n\1\n```", text, flags=re.MULTILINE | re.DOTALL)


# -- commands


def commands(group: LazyGroup, before: str = "mainspring") -> Iterator[tuple[str, click.Command]]:
    """Every command under its whole name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, LazyGroup):
            yield from commands(command, f"{before} {name}")
        else:
            yield f"{before} {name}", command


def shared_options() -> set[str]:
    """The options that every command has."""
    return {option.name or "" for option in Verb("any").params}


def options_table(params: Iterable[click.Parameter]) -> str:
    """The options of a command, as its help shows them."""
    context = click.Context(click.Command("any"))
    records = [param.get_help_record(context) for param in params if isinstance(param, click.Option)]
    shown = [(f"`{record[0]}`", record[1]) for record in records if record is not None]
    return table(("option", "meaning"), shown)


def cli_page() -> str:
    """Every command with its arguments and options."""
    shared = shared_options()
    parts = [
        "# Commands and options\n\nAfter this page you know every command of `mainspring` with its options. "
        "[The command line](../commands.md) is the overview." + NOTE,
        "## Options of every command\n\n" + options_table(Verb("any").params),
    ]
    for name, command in commands(cli):
        context = click.Context(command, info_name=name)
        usage = " ".join(command.collect_usage_pieces(context))
        own = [param for param in command.params if param.name not in shared]
        parts.append(f"## {name}\n\n```text\n{name} {usage}\n```\n\n{paragraphs(command.help)}\n\n{options_table(own)}")
    return "\n".join(part.strip() + "\n" for part in parts)


# -- HTTP


def shape(schema: Mapping[str, Any]) -> str:
    """The type of a JSON value, in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(shape(each) for each in schema[word] if each))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"] if value != "")
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"list of {shape(schema.get('items', {}))}"
    return f"{kind} ({schema['format']})" if "format" in schema else kind


def operation_text(method: str, path: str, operation: Mapping[str, Any]) -> str:
    """One operation: what it needs, takes and answers."""
    parameters = [each for each in operation.get("parameters", ()) if each["in"] != "header"]
    headers = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "header"]
    text = f"### {method.upper()} {path}\n\n{operation['summary'].rstrip('.')}. {operation['description']}\n\n"
    rows = ((f"`{each['name']}`", each["in"], shape(each["schema"])) for each in parameters)
    text += table(("parameter", "in", "type"), rows)
    lines = []
    if body := operation.get("requestBody"):
        lines.append(f"Body: {shape(body['content']['application/json']['schema'])}.")
    good = [
        f"{status} " + " or ".join(shape(each["schema"]) for each in answer.get("content", {}).values())
        for status, answer in operation["responses"].items()
        if status < "400"
    ]
    lines.append(f"Answers: {', '.join(each.strip() for each in good)}.")
    lines.append(f"Refusals: {', '.join(status for status in operation['responses'] if status >= '400')}.")
    if headers:
        lines.append(f"Headers: {', '.join(f'`{name}`' for name in headers)}.")
    return text + " ".join(lines) + "\n"


def rest_page() -> str:
    """Every operation of the API, and the shapes that it takes and answers."""
    document = describe_api(ENDPOINTS)
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append(operation_text(method, path, operation))
    parts = [
        "# Operations of the API\n\nAfter this page you know every request that a server takes, and the shape of every "
        "answer. [The API](../api.md) explains tokens, idempotency, pages and streams; `GET /openapi.json` is the same "
        "as a document." + NOTE
    ]
    parts += [f"## {tag}\n\n" + "\n".join(texts) for tag, texts in by_tag.items()]
    parts.append("## Shapes\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        needed = set(schema.get("required", ()))
        rows = (
            (f"`{field}`" + (" (required)" if field in needed else ""), shape(kind), kind.get("description", ""))
            for field, kind in schema.get("properties", {}).items()
        )
        fields = table(("field", "type", "meaning"), rows) or f"{shape(schema)}\n"
        parts.append(f"### {name}\n\n{paragraphs(schema.get('description'))}\n\n{fields}")
    return "\n".join(part.strip() + "\n" for part in parts)


# -- the SDK


def signature_of(function: Any) -> str:
    """The parameters of a function, without the types of the implementation's own."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    parameters = [each for name, each in signature.parameters.items() if name not in ("self", "cls")]
    text = str(signature.replace(parameters=parameters)).replace("'", "")
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def members(kind: type) -> Iterator[str]:
    """The public methods and properties of a class and of the classes that it is made of, by definition order."""
    seen: set[str] = set()
    for part in kind.__mro__:
        if not part.__module__.startswith("mainspring"):
            continue
        for name, value in vars(part).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            called = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            about = called.func if isinstance(called, cached_property) else called
            if inspect.isfunction(called) and called.__doc__:
                prefix = "async " if inspect.iscoroutinefunction(called) else ""
                yield f"#### {prefix}`{name}{signature_of(called)}`\n\n{paragraphs(called.__doc__)}\n"
            elif isinstance(called, property | cached_property) and about.__doc__:
                yield f"#### `{name}`\n\n{paragraphs(about.__doc__)}\n"


def fields(kind: type) -> str:
    """The fields of a record."""
    notes = {name: value for name, value in inspect.get_annotations(kind).items() if not name.startswith("_")}
    return table(("field", "type"), ((f"`{name}`", f"`{value}`") for name, value in notes.items()))


def name_text(name: str, value: Any) -> str:
    """One public name."""
    text = f"### {name}\n\n"
    if inspect.isclass(value):
        has_init = "__init__" in vars(value) or not issubclass(value, Exception)
        if has_init and not hasattr(value, "__struct_fields__"):
            text += f"```text\n{name}{signature_of(value)}\n```\n\n"
        text += f"{paragraphs(value.__doc__)}\n\n"
        if hasattr(value, "__struct_fields__"):
            text += fields(value)
        return text + "\n".join(members(value))
    if callable(value):
        return text + f"```text\n{name}{signature_of(value)}\n```\n\n{paragraphs(value.__doc__)}\n"
    return text + f"{paragraphs(value.__doc__)}\n"


def sdk_page() -> str:
    """The public names of the package, from their docstrings."""
    parts = [
        "# Public names\n\nAfter this page you know everything that `import mainspring` offers. "
        "[The SDK](../sdk.md) shows it at work." + NOTE,
        "## mainspring\n",
    ]
    parts += [name_text(name, getattr(mainspring, name)) for name in mainspring.__all__ if name != "__version__"]
    parts += ["## app.jobs\n", "\n".join(members(Jobs)), "## app.runs\n", "\n".join(members(AppRuns))]
    return "\n".join(part.strip() + "\n" for part in parts)


# -- errors and events


def all_errors() -> list[type[errors.MainspringError]]:
    """The tree of exceptions, each after its parent."""

    def below(kind: type[errors.MainspringError]) -> Iterator[type[errors.MainspringError]]:
        yield kind
        for each in kind.__subclasses__():
            if each.__module__ == errors.__name__:
                yield from below(each)

    return list(below(errors.MainspringError))


def error_row(kind: type[errors.MainspringError]) -> tuple[str, str, str, str, str]:
    """An exception: its parent, meaning, exit code of the command line, and problem of the API."""
    sample = kind.__new__(kind)
    sample.__dict__.update(field="field", value="value", problem="is wrong", remedy="", faults=[], version=1)
    sample.__dict__.update(job="job", fire_at=None, outcome="failed", reason="")
    problem = to_problem(sample) if issubclass(kind, SERVED) else None
    answer = f"{problem.status} `{problem.kind}`" if problem is not None else ""
    parent = kind.__mro__[1].__name__
    return f"`{kind.__name__}`", f"`{parent}`", paragraphs(kind.__doc__), str(_code(sample)), answer


def errors_page() -> str:
    """The exceptions, and the problems of the API."""
    problems = ((f"`{PREFIX}{kind}`", status, title) for kind, (status, title) in TITLES.items())
    return (
        "# Errors\n\nAfter this page you know every exception of the SDK. You also know the exit code that it becomes "
        "on the command line, and the problem that it becomes over HTTP."
        + NOTE
        + "\n## Exceptions\n\n"
        + table(("`mainspring.errors`", "is a", "meaning", "exit code", "HTTP"), map(error_row, all_errors()))
        + "Exit codes beside these: 0 good, 2 wrong usage, 130 interrupted.\n\n## Problems of the API\n\n"
        "The `type` of a problem never changes. Its `detail` says what happened, `remedy` what to do, `errors` names "
        "each wrong field.\n\n" + table(("type", "status", "title"), problems)
    )


def events_page() -> str:
    """The kinds of events."""
    kinds = ((f"`{kind}`", meaning) for kind, meaning in EVENTS.items())
    aliases = ((f"`{name}`", ", ".join(f"`{kind}`" for kind in found)) for name, found in ALIASES.items())
    fields_of = mainspring.Event
    return (
        "# Kinds of events\n\nAfter this page you know every event that `mainspring events`, `GET /v1/events`, "
        "`@app.on_end` and [sinks](../events.md) report. Each is written in the transaction in which it happens."
        + NOTE
        + "\n"
        + table(("kind", "when"), kinds)
        + "## Names of other schedulers\n\nA filter by kind understands these, too.\n\n"
        + table(("name", "stands for"), aliases)
        + f"## Fields\n\n{paragraphs(fields_of.__doc__)}\n\n"
        + fields(fields_of)
    )


PAGES = {
    "commands.md": cli_page,
    "operations.md": rest_page,
    "names.md": sdk_page,
    "errors.md": errors_page,
    "events.md": events_page,
}


def make_pages() -> dict[str, str]:
    """Every page by its name, with one line feed at its end and no more than one empty line in a row."""
    return {name: re.sub(r"\n{3,}", "\n\n", make()).strip() + "\n" for name, make in PAGES.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for page, text in make_pages().items():
        (FOLDER / page).write_text(text)
    sys.stderr.write(f"{len(PAGES)} pages of docs/reference are made\n")
