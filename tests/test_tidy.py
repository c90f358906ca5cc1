"""The measurable part of the style: sizes, names, layers, exports. Files follow subjects; limits only stop sprawl."""

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "mainspring"
STORES = ["sqlite", "postgres"]
FILES = sorted(SOURCE.rglob("*.py"))
TEXTS = {path: path.read_text() for path in FILES}
LONGEST_FILE = 600
LONGEST_FUNCTION = 50
MOST_PORT_METHODS = 15
MOST_MODULES = 15
MOST_ARCHITECTURE_WORDS = 700
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "managers", "misc"}
IMPURE = {
    "asyncio",
    "time",
    "random",
    "secrets",
    "uuid",
    "os",
    "socket",
    "sqlite3",
    "threading",
    "subprocess",
    "logging",
}
PORTS = [
    "store.py",
    "insight.py",
    "broker.py",
    "lease.py",
    "cache.py",
    "limiter.py",
    "executor.py",
    "sink.py",
    "clock.py",
]


FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def named(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def length_without_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    start = function.body[0]
    docstring = ast.get_docstring(function, clean=False)
    skipped = (start.end_lineno or 0) - start.lineno + 1 if docstring is not None else 0
    return (function.end_lineno or 0) - function.lineno + 1 - skipped


def is_undocumented(node: ast.stmt) -> bool:
    if not isinstance(node, FUNCTION | ast.ClassDef) or node.name.startswith("_") or ast.get_docstring(node):
        return False
    return not any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in node.decorator_list)


class Facts(NamedTuple):
    """What the rules ask of a file. Its syntax tree is not kept."""

    has_docstring: bool
    lengths: dict[str, int]
    undocumented: list[str]


@pytest.fixture(scope="module")
def facts() -> dict[str, Facts]:
    found = {}
    for path, text in TEXTS.items():
        tree = ast.parse(text)
        lengths = {each.name: length_without_docstring(each) for each in ast.walk(tree) if isinstance(each, FUNCTION)}
        undocumented = [getattr(node, "name", "") for node in tree.body if is_undocumented(node)]
        found[named(path)] = Facts(ast.get_docstring(tree) is not None, lengths, undocumented)
    return found


class TestEveryFile:
    """A rule is one test that names all files which break it: a test for each file and rule would be thousands."""

    def test_is_short(self) -> None:
        lengths = {named(path): len(text.splitlines()) for path, text in TEXTS.items()}
        assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}

    def test_has_short_functions(self, facts: dict[str, Facts]) -> None:
        lengths = {f"{name}:{key}": lines for name, each in facts.items() for key, lines in each.lengths.items()}
        assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}

    def test_has_a_name_that_says_something(self) -> None:
        assert [named(path) for path in FILES if path.stem in FORBIDDEN_NAMES] == []

    def test_says_what_it_is_for(self, facts: dict[str, Facts]) -> None:
        assert [name for name, each in facts.items() if not each.has_docstring] == []

    def test_keeps_public_names_documented(self, facts: dict[str, Facts]) -> None:
        assert {name: each.undocumented for name, each in facts.items() if each.undocumented} == {}


def test_no_folder_is_a_heap() -> None:
    """A flat folder of more modules than a reader keeps in mind wants rooms."""
    modules = Counter(path.parent.relative_to(SOURCE).as_posix() for path in FILES if not path.name.startswith("__"))
    assert {folder: count for folder, count in modules.items() if count > MOST_MODULES} == {}


def test_a_plain_word_names_one_class() -> None:
    """Words that stood for several things. A record that is public may have the name of the row that it shows."""
    words = {"Held", "Work", "Place", "Answer", "Call", "Pool", "Scheduler", "Standing", "Line", "Board"}
    found = Counter(name for text in TEXTS.values() for name in re.findall(r"^class _?(\w+)", text, re.MULTILINE))
    assert {name: found[name] for name in words if found[name] > 1} == {}


def test_core_is_pure() -> None:
    found = set[str]()
    for path in (SOURCE / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(TEXTS[path])):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {f"{named(path)}: {name}" for name in imported if name.partition(".")[0] in IMPURE}
            if isinstance(node, ast.AsyncFunctionDef | ast.Await):
                found.add(f"{named(path)}:{node.lineno} is asynchronous")
    assert found == set()


def test_services_see_time_and_chance_only_through_what_they_are_given() -> None:
    for path in (SOURCE / "services").rglob("*.py"):
        text = TEXTS[path]
        assert not re.search(
            r"\b(time\.time|time\.monotonic|datetime\.now|uuid\.|random\.random\(\)|asyncio\.sleep)\b", text
        ), path


@pytest.mark.parametrize("name", PORTS)
def test_ports_are_small(name: str) -> None:
    for node in ast.parse(TEXTS[SOURCE / name]).body:
        if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "Protocol" for base in node.bases):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
            assert len(methods) <= MOST_PORT_METHODS, node.name


def test_nothing_passes_unseen_through_getattr() -> None:
    found = [path for path in FILES if path.name != "__init__.py" and "__getattr__" in TEXTS[path]]
    assert [named(path) for path in found] == []


def test_what_a_store_can_do_is_an_attribute() -> None:
    """A store may be wrapped by several layers: only the outermost would be an instance of the class asked for."""
    asked = re.compile(r"isinstance\([^)]*\b\w+(?:Store|Layer)\b")
    found = [
        f"{named(path)}: {line.strip()}"
        for path, text in TEXTS.items()
        for line in text.splitlines()
        if asked.search(line)
    ]
    assert found == []


def test_there_is_no_pickle_and_no_import_from_data() -> None:
    for path, text in TEXTS.items():
        assert not re.search(r"^\s*(import|from) (pickle|dill|cloudpickle|marshal|shelve)\b", text, re.MULTILINE), path


def test_every_named_query_is_used() -> None:
    source = "\n".join(TEXTS.values())
    for file in (SOURCE / "stores" / "sql").rglob("queries/*.sql"):
        text = file.read_text()
        for name in re.findall(r"^-- (\w+): ", text, re.MULTILINE):
            assert f'["{name}"]' in source, f"{file.name}: {name} is never used"
        shared = re.findall(r"^-- ({\w+}): ", text, re.MULTILINE)
        assert set(re.findall(r"(?<!-- ){\w+}", text)) == set(shared), f"{file.name}: shared text and its uses differ"


def test_the_architecture_fits_one_page_and_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.split()) <= MOST_ARCHITECTURE_WORDS
    rooms = {
        path.stem if path.suffix else path.name
        for path in SOURCE.iterdir()
        if not path.name.startswith(("__", "py.typed"))
    }
    missing = {room for room in rooms if not re.search(rf"\b{room}\b", text)}
    assert missing == set()


def test_the_architecture_names_modules_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    modules = re.findall(r"`((?:core|services|sdk)/[\w/]+)`", text)
    modules += [
        f"stores/{store}/{path}" for path in re.findall(r"`((?:definitions|ends)/\w+)`", text) for store in STORES
    ]
    assert len(modules) > 8
    assert [path for path in modules if not (SOURCE / f"{path}.py").exists() and not (SOURCE / path).is_dir()] == []


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    text = (ROOT / "docs" / "dependencies.md").read_text()
    names = {re.split(r"[^\w.-]", each)[0] for each in wanted}
    assert {name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)} == set()


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "examples", "scripts"])
def test_every_check_that_is_switched_off_has_its_reason(folder: str) -> None:
    switched_off = re.compile(r"# (?:type: ignore\[[\w, -]+\]|noqa: [A-Z0-9, ]*[0-9])(?P<rest>.*)")
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(part.startswith(".venv") for part in path.parts)  # The peers of the benchmarks.
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := switched_off.search(line)) and not re.search(r"\w{2}.*\w", found["rest"])
    ]
    assert bare == []


ROOMS = {path.stem for path in SOURCE.iterdir()} - {"__init__", "__main__", "client"}  # `client.jobs` is an attribute.
REFERENCE = re.compile(r"`((?:mainspring\.)?[a-z_]+(?:\.[A-Za-z_]+)+)`")


def is_in_the_source(reference: str) -> bool:
    """Whether a dotted name is a room, a module, or is written in the module that it names."""
    place, parts = SOURCE, reference.removeprefix("mainspring.").split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if not parts:
        return True
    module = place / f"{parts[0]}.py"
    return module.exists() and all(re.search(rf"\b{part}\b", module.read_text()) for part in parts[1:])


def test_what_comments_refer_to_exists() -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {reference}"
        for path in FILES
        for reference in REFERENCE.findall(path.read_text())
        if reference.removeprefix("mainspring.").partition(".")[0] in ROOMS and not is_in_the_source(reference)
    ]
    assert found == []


DIALECT = re.compile(r"\b(?:told|whoever|somebody|so (?:many|few))\b|\bWho (?:has|is|was|does)\b")
DIALECT_IN_NAMES = re.compile(r"def test_\w*_(?:told|tells|whoever)(?:_|\b)|def test_who_")


def test_programs_report_and_actors_have_names() -> None:
    """Programs do not "tell" things; an actor is the worker, the leader, the caller, never "who" or "somebody"."""
    suites = sorted((ROOT / "tests").rglob("test_*.py"))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for paths, dialect in ((FILES, DIALECT), (suites, DIALECT_IN_NAMES))
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if dialect.search(line) and path.name != "test_tidy.py"
    ]
    assert found == []


SCRIPTS = sorted(path for path in (SOURCE / "ui").rglob("*.js") if "libraries" not in path.parts)
LONGEST_SCRIPT = 400
FORBIDDEN_IN_SCRIPTS = {
    "markup from a string": r"innerHTML|outerHTML|insertAdjacentHTML|document\.write",
    "a style as an attribute": r"\bstyle=[\"$]",
    "a string as code": r"\beval\(|new Function\(",
    "an address of another host": r"[\"'`](?:https?:)?//[a-z]",
}
MAY_STORE = {"state/settings.js", "first.js"}


class TestEveryScript:
    def test_is_short_and_has_short_functions(self) -> None:
        long = set[str]()
        for path in SCRIPTS:
            lines = path.read_text().splitlines()
            begins = [n for n, line in enumerate(lines) if re.match(r"(export )?(default )?(async )?function ", line)]
            ends = [next(n for n in range(begin, len(lines)) if lines[n].startswith("}")) for begin in begins]
            long |= {
                f"{named(path)}: {lines[b]}" for b, e in zip(begins, ends, strict=True) if e - b + 1 > LONGEST_FUNCTION
            }
            if len(lines) > LONGEST_SCRIPT:
                long.add(f"{named(path)}: {len(lines)} lines")
        assert long == set()

    def test_says_what_it_is_for(self) -> None:
        assert [named(path) for path in SCRIPTS if not path.read_text().startswith("/*")] == []

    @pytest.mark.parametrize("what", FORBIDDEN_IN_SCRIPTS)
    def test_has_nothing_that_the_policy_of_the_page_forbids(self, what: str) -> None:
        found = {named(path): re.findall(FORBIDDEN_IN_SCRIPTS[what], path.read_text()) for path in SCRIPTS}
        assert {name: matches for name, matches in found.items() if matches} == {}

    def test_stores_nothing_in_the_browser_but_settings(self) -> None:
        storing = r"localStorage|sessionStorage|indexedDB"
        found = {path.relative_to(SOURCE / "ui").as_posix() for path in SCRIPTS if re.search(storing, path.read_text())}
        assert found - MAY_STORE == set()
