"""The files of the web UI: by exact name only, cached by digest, under the strictest policy."""

from __future__ import annotations

import gzip
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from door import Door, open_door, problem

from mainspring.api.assets import OVERVIEW, Assets

NEWER = "f" * 20
POLICY = {
    "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self'",
    "connect-src": "'self'", "manifest-src": "'self'", "base-uri": "'none'", "form-action": "'none'",
    "frame-ancestors": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "'none'",
}  # fmt: skip
REQUESTS_OF_OVERVIEW = 6
"""The caller, the overview, tallies, kinds of error, the load ahead, and the stream of news."""
HEADERS_BYTES = 450


def make_ui(folder: Path) -> Path:
    """A small UI, beside a file that is none of it."""
    ui = folder / "ui"
    (ui / "libraries").mkdir(parents=True)
    (ui / "index.html").write_text('<html data-base="{{base}}">{{preloads}}<script src="{{assets}}/main.js"></script>')
    (ui / "main.js").write_text("export {};\n")
    (ui / "libraries" / "preact.js").write_text("export const h = 1;\n")
    (ui / "package.json").write_text("{}")
    (folder / "secret.js").write_text("hush")
    return ui


def asset(door: Door, name: str = "main.js", digest: str | None = None) -> str:
    return f"/ui/assets/{digest or door.server.assets.digest}/{name}"


def test_only_files_of_known_kinds_are_served(tmp_path: Path) -> None:
    assets = Assets(make_ui(tmp_path))
    assert set(assets.files) == {"main.js", "libraries/preact.js"}
    assert assets.is_complete


def test_the_digest_changes_with_any_file(tmp_path: Path) -> None:
    ui = make_ui(tmp_path)
    before = Assets(ui).digest
    assert Assets(ui).digest == before
    (ui / "libraries" / "preact.js").write_text("export const h = 2;\n")
    assert Assets(ui).digest != before


def test_what_the_server_writes_into_the_shell_is_escaped(tmp_path: Path) -> None:
    shell = Assets(make_ui(tmp_path)).shell('/x"><script>').decode()
    assert "<script>" not in shell.replace("<script src", "")
    assert "&quot;&gt;&lt;script&gt;" in shell


def test_without_its_libraries_the_page_says_what_to_run(tmp_path: Path) -> None:
    ui = make_ui(tmp_path)
    (ui / "libraries" / "preact.js").unlink()
    assert not Assets(ui).is_complete


def test_a_file_is_cached_for_good_under_its_digest_and_not_under_another(door: Door) -> None:
    answer = door.client().get(asset(door))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "immutable" in answer.headers["cache-control"]
    other = door.client().get(asset(door, digest=NEWER))
    assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")


def test_a_file_that_the_browser_has_is_not_sent_again(door: Door) -> None:
    tag = door.client().get(asset(door)).headers["etag"]
    again = door.client().get(asset(door), headers={"If-None-Match": f'"x", W/{tag}'})
    assert (again.status_code, again.content) == (304, b"")
    assert door.client().get(asset(door), headers={"If-None-Match": '"x"'}).status_code == 200


def test_the_shell_is_compressed_for_browsers_that_can_read_it(complete: Door) -> None:
    plain = complete.client().get("/ui/", headers={"Accept-Encoding": "identity"})
    with complete.client().stream("GET", "/ui/", headers={"Accept-Encoding": "gzip"}) as answer:
        assert gzip.decompress(b"".join(answer.iter_raw())) == plain.content
    assert {each.headers["vary"] for each in (plain, answer)} == {"Accept-Encoding"}


def test_a_file_is_compressed_for_browsers_that_can_read_it(door: Door) -> None:
    content = door.server.assets.files["main.js"].content
    with door.client().stream("GET", asset(door), headers={"Accept-Encoding": "gzip"}) as answer:
        assert gzip.decompress(b"".join(answer.iter_raw())) == content
        assert answer.headers["vary"] == "Accept-Encoding"
    with door.client().stream("GET", asset(door), headers={"Accept-Encoding": "identity"}) as answer:
        assert b"".join(answer.iter_raw()) == content


@pytest.mark.parametrize(
    "path",
    [
        "../index.html",
        "../../settings.py",
        "..%2f..%2fsettings.py",
        "%2e%2e/%2e%2e/settings.py",
        "..\\..\\settings.py",
        "....//settings.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "main.js%00.css",
        "main.js/",
        "MAIN.JS",
        "package.json",
        "package-lock.json",
        "jsconfig.json",
        "index.html",
        ".",
        "libraries",
    ],
)
@pytest.mark.parametrize("digest", [None, NEWER, "..", "%2e%2e"])
def test_nothing_else_can_be_read(door: Door, path: str, digest: str | None) -> None:
    named = digest or door.server.assets.digest
    head = f"GET /ui/assets/{named}/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    top, _, body = door.raw(head.encode()).partition(b"\r\n\r\n")
    status = int(top.split(b" ")[1])
    if status == 200:  # Slashes at the end do not matter anywhere; a climbing digest is only a wrong digest.
        assert body in (door.server.assets.files["main.js"].content,)
        assert path == "main.js/"
    else:
        assert status in (401, 404), top
        assert b"urn:mainspring:problem:" in body
        assert b"root:" not in body


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """A server whose UI has its libraries, whether or not they have been fetched here."""
    ui = make_ui(tmp_path)
    monkeypatch.setattr("mainspring.api.server.Assets", lambda: Assets(ui))
    with open_door(tmp_path) as door:
        yield door


def test_the_files_are_read_before_the_first_viewer_comes(complete: Door) -> None:
    assert {"files", "digest"} <= set(vars(complete.server.assets))


def test_without_its_libraries_the_server_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ui = make_ui(tmp_path)
    (ui / "libraries" / "preact.js").unlink()
    monkeypatch.setattr("mainspring.api.server.Assets", lambda: Assets(ui))
    with open_door(tmp_path) as door:
        answer = door.client().get("/ui/")
    assert (answer.status_code, "scripts/ui-libraries" in answer.text) == (503, True)


def test_the_shell_is_the_same_for_every_page_but_the_first_and_allows_nothing_inline(complete: Door) -> None:
    door = complete
    first = [door.client().get(path) for path in ("/ui", "/ui/", "/ui/?ns=x")]
    others = [door.client().get(path) for path in ("/ui/jobs/a", "/ui/runs?ns=x&state=failed", "/ui/login")]
    for answers in (first, others):
        assert {answer.text for answer in answers} == {answers[0].text}
    assert first[0].text != others[0].text
    for answer in (*first, *others):
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"].split("; ")
        assert {name: value for name, _, value in (each.partition(" ") for each in policy)} == POLICY
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"


def test_the_shell_names_files_that_are_served() -> None:
    assets = Assets()
    text = assets.shell().decode()
    named = re.findall(rf"/ui/assets/{assets.digest}/([\w./-]+)", text)
    assert named
    assert set(named) <= set(assets.files)
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)


def imported(assets: Assets, name: str, seen: list[str] | None = None) -> list[str]:
    """A module and those that it imports, each once."""
    seen = [] if seen is None else seen
    if name not in seen:
        seen.append(name)
        for other in re.findall(r'^import [^"]*"([^"]+)";', assets.files[name].content.decode(), re.MULTILINE):
            imported(assets, posixpath.normpath(posixpath.join(posixpath.dirname(name), other)), seen)
    return seen


def preloaded(shell: bytes) -> list[str]:
    """The modules that a shell names, sorted."""
    return sorted(re.findall(r'rel="modulepreload" href="/ui/assets/\w+/([\w./-]+)"', shell.decode()))


def test_the_shell_preloads_what_every_page_imports_and_that_of_the_overview_its_own() -> None:
    assets = Assets()
    every = imported(assets, "main.js")
    assert preloaded(assets.shell()) == sorted(set(every) - {"main.js"})
    its_own = imported(assets, OVERVIEW, every)
    assert preloaded(assets.shell("", OVERVIEW)) == sorted(set(its_own) - {"main.js"})
    assert OVERVIEW in its_own


def test_modules_that_import_each_other_are_named_once(tmp_path: Path) -> None:
    ui = make_ui(tmp_path)
    (ui / "main.js").write_text('import {\n  a,\n} from "./parts/a.js";\nimport "./libraries/preact.js";\n')
    (ui / "parts").mkdir()
    (ui / "parts" / "a.js").write_text('import { h } from "../libraries/preact.js";\nimport { b } from "./b.js";\n')
    (ui / "parts" / "b.js").write_text('import { a } from "./a.js";\nconst later = () => import("./c.js");\n')
    assert preloaded(Assets(ui).shell()) == ["libraries/preact.js", "parts/a.js", "parts/b.js"]


def test_the_first_page_keeps_its_budget() -> None:
    assets = Assets()
    files = ["style.css", "first.js", "icon.svg", *imported(assets, OVERVIEW, imported(assets, "main.js"))]
    assert 1 + len(files) + REQUESTS_OF_OVERVIEW <= 26
    sizes = [len(assets.files[name].compressed) + HEADERS_BYTES for name in files]
    shell = gzip.compress(assets.shell("", OVERVIEW))
    assert sum(sizes) + len(shell) <= 60_000  # The answers of the API have the rest of 90 kB.
    assert sum(len(asset.compressed) for asset in assets.files.values()) <= 170_000


def test_no_other_method_is_served(door: Door) -> None:
    for path in ("/ui/", asset(door)):
        answer = door.client().post(path)
        problem(answer, 405, "method-not-allowed")
        assert answer.headers["allow"] == "GET, HEAD"


def test_the_root_leads_browsers_to_the_page_and_programs_to_the_documentation(door: Door) -> None:
    answer = door.client().get("/", headers={"Accept": "text/html,*/*"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")
    assert door.client().get("/").status_code == 200


def test_a_server_without_the_ui_serves_nothing_of_it(tmp_path: Path) -> None:
    with open_door(tmp_path, ui=False) as door:
        client = door.client("viewer")
        for path in ("/ui", "/ui/", "/ui/jobs", asset(door)):
            problem(client.get(path), 404, "not-found")
        assert client.get("/", headers={"Accept": "text/html"}).status_code == 200
