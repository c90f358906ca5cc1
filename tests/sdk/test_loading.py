"""From what a command names to the app: files, modules, and what is said when it does not work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.errors import AppLoadError
from mainspring.sdk.loading import load_app

APP = "from mainspring import Mainspring\napp = Mainspring(name={name!r})\n"


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working folder of its own; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def write(path: str, text: str) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


class TestWhatIsFound:
    def test_the_only_app_of_a_file(self) -> None:
        write("films.py", APP.format(name="films"))
        assert load_app("films.py").name == "films"

    def test_a_named_app_of_a_file(self) -> None:
        write("films.py", APP.format(name="films") + "other = Mainspring(name='other')\n")
        assert load_app("films.py:other").name == "other"

    def test_the_only_app_of_a_module(self) -> None:
        write("shop/__init__.py", "")
        write("shop/work.py", APP.format(name="shop"))
        assert load_app("shop.work").name == "shop"

    def test_a_named_app_of_a_module(self) -> None:
        write("billing.py", APP.format(name="billing"))
        assert load_app("billing:app").name == "billing"

    def test_a_file_in_another_folder_can_import_its_neighbours(self) -> None:
        write("deep/down/neighbour.py", "NAME = 'down'\n")
        write("deep/down/main_app.py", "from neighbour import NAME\n" + APP.format(name="x").replace("'x'", "NAME"))
        assert load_app("deep/down/main_app.py").name == "down"

    def test_what_a_file_imports_can_import_it_in_turn(self) -> None:
        write("round_tasks.py", "from round_app import app\n@app.task\ndef send(to: str) -> None: ...\n")
        write("round_app.py", APP.format(name="round") + "import round_tasks\n")
        assert list(load_app("round_app.py").tasks) == ["send"]

    def test_an_app_with_two_names_is_one_app(self) -> None:
        write("twice.py", APP.format(name="twice") + "application = app\n")
        assert load_app("twice.py").name == "twice"

    def test_an_app_that_the_file_only_imports(self) -> None:
        write("owner.py", APP.format(name="owner"))
        write("guest.py", "from owner import app\n")
        assert load_app("guest.py").name == "owner"

    def test_the_same_app_when_it_is_loaded_again(self) -> None:
        write("again.py", APP.format(name="again"))
        assert load_app("again.py") is load_app("again.py:app")

    def test_a_file_that_is_called_like_a_loaded_module_leaves_that_module_in_place(self) -> None:
        write("textwrap.py", APP.format(name="wrap"))
        import_before = sys.modules["textwrap"]
        assert load_app("textwrap.py").name == "wrap"
        assert sys.modules["textwrap"] is import_before


class TestWhatIsRefused:
    def refused(self, ref: str) -> AppLoadError:
        with pytest.raises(AppLoadError) as refusal:
            load_app(ref)
        return refusal.value

    def test_a_file_that_does_not_exist(self) -> None:
        assert "there is no file nowhere.py" in str(self.refused("nowhere.py"))

    def test_a_module_that_does_not_exist(self) -> None:
        assert "there is no module nowhere_at_all" in str(self.refused("nowhere_at_all:app"))

    def test_a_file_without_an_app(self) -> None:
        write("empty_app.py", "x = 1\n")
        assert "app = Mainspring()" in str(self.refused("empty_app.py"))

    def test_a_file_with_several_apps_unless_one_is_named(self) -> None:
        write("many.py", APP.format(name="a") + "second = Mainspring(name='b')\n")
        assert "several apps (app, second): say which, e.g. many.py:app" in str(self.refused("many.py"))

    def test_a_name_that_is_not_there_or_is_no_app(self) -> None:
        write("named.py", APP.format(name="a") + "x = 1\n")
        assert "named.py has no 'ap'. The apps in it: app" in str(self.refused("named.py:ap"))
        assert "has a 'x', but it is not a Mainspring app" in str(self.refused("named.py:x"))

    def test_a_file_that_fails_shows_the_users_frames_and_no_others(self) -> None:
        write("inner.py", "def connect():\n    return {}['url']\n")
        write("broken.py", "from mainspring import Mainspring\nfrom inner import connect\nconnect()\n")
        error = self.refused("broken.py")
        assert "broken.py could not be imported: KeyError: 'url' (inner.py, line 2)" in str(error)
        assert "connect()" in error.user_traceback
        assert "return {}['url']" in error.user_traceback
        assert error.user_traceback.count("  File ") == 2

    def test_a_wrong_declaration_is_shown_where_the_user_wrote_it(self) -> None:
        write("wrong.py", APP.format(name="a") + "@app.task(priority=99)\ndef send() -> None: ...\n")
        error = self.refused("wrong.py")
        assert "wrong.py, line 3: priority: 99 is not a priority" in str(error)
        assert not error.user_traceback

    def test_frames_of_an_earlier_error_are_the_users_too(self) -> None:
        attempt = "import importlib\ntry:\n    importlib.import_module('gone_away')\n"
        write("chained.py", attempt + "except ImportError as error:\n    raise ValueError('no plugin') from error\n")
        reported = self.refused("chained.py").user_traceback
        assert "gone_away" in reported
        assert "importlib/__init__.py" not in reported

    def test_a_file_that_is_not_python(self) -> None:
        write("syntax.py", "x = 1\ndef broken(:\n")
        error = self.refused("syntax.py")
        assert "SyntaxError" in str(error)
        assert "line 2" in str(error)
        assert "def broken(:" in error.user_traceback
        assert "importlib" not in error.user_traceback

    def test_a_module_that_misses_another_one_names_that(self) -> None:
        write("needy.py", "import something_not_installed\n")
        error = self.refused("needy")
        assert "needy could not be imported" in str(error)
        assert "something_not_installed" in error.user_traceback

    def test_a_file_that_ends_the_program(self) -> None:
        write("quits.py", "import sys\nsys.exit(3)\n")
        assert "quits.py could not be imported: SystemExit: 3" in str(self.refused("quits.py"))

    def test_a_file_that_failed_can_be_corrected_and_loaded(self) -> None:
        write("mended.py", "1 / 0\n")
        self.refused("mended.py")
        write("mended.py", APP.format(name="mended"))
        assert load_app("mended.py").name == "mended"
