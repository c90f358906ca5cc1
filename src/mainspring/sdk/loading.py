"""Loads the app that a command names as `module:app` or `file.py`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from mainspring.errors import AppLoadError, InvalidInput
from mainspring.sdk.app import Mainspring

_OURS = str(Path(__file__).parent.parent)
_MACHINERY = ("<frozen importlib", str(Path(importlib.__file__).parent))
"""What the names of files of Python's import system begin with."""


def load_app(ref: str) -> Mainspring:
    """The app that `module`, `module:name`, `path/file.py` or `path/file.py:name` names; AppLoadError otherwise.

    The working folder, and the folder of a file, can be imported from afterwards.
    """
    _add_to_path(Path.cwd())
    target, _, name = _split(ref)
    module = _load_file(Path(target)) if target.endswith(".py") else load_module(target)
    return _named(module, target, name) if name else _only(module, target)


def _split(ref: str) -> tuple[str, str, str]:
    # From the right, since a path may have a colon of its own, as in C:\apps\app.py.
    parts = ref.rpartition(":")
    return parts if parts[0] and not parts[2].endswith(".py") else (ref, "", "")


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _load_file(file: Path) -> ModuleType:
    path = file.resolve()
    if not path.is_file():
        raise AppLoadError(f"there is no file {file}: check the path, which begins at {Path.cwd()}")
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    # A file may be called like a module that is loaded already, and must not take its place.
    name = path.stem if loaded is None else f"mainspring_app_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AppLoadError(f"{file} cannot be imported: is it a Python file?")
    _add_to_path(path.parent)
    module = importlib.util.module_from_spec(spec)
    # Before it runs, so that what it imports can import it in turn.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _failure(str(file), error) from error
    return module


def load_module(name: str) -> ModuleType:
    """The module of a name; AppLoadError, with the line that failed, if it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Of the module itself, or of a package that it is in: not of something that it imports.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            remedy = "check its name, and that this is the folder of your project; a file ends in .py"
            raise AppLoadError(f"there is no module {error.name}: {remedy}") from error
        raise _failure(name, error) from error
    except (Exception, SystemExit) as error:
        raise _failure(name, error) from error


def _failure(what: str, error: BaseException) -> AppLoadError:
    story = traceback.TracebackException.from_exception(error)
    _keep_users_frames(story)
    last = story.stack[-1] if story.stack else None
    if last and isinstance(error, InvalidInput):  # It says what is wrong and what to do: the line is enough.
        return AppLoadError(f"{Path(last.filename).name}, line {last.lineno}: {error}")
    place = f" ({Path(last.filename).name}, line {last.lineno})" if last else ""
    shown = story.format() if story.stack else story.format_exception_only()
    return AppLoadError(f"{what} could not be imported: {type(error).__name__}: {error}{place}", "".join(shown))


def _keep_users_frames(story: traceback.TracebackException) -> None:
    frames = [frame for frame in story.stack if not frame.filename.startswith((_OURS, *_MACHINERY))]
    story.stack = traceback.StackSummary.from_list(frames)
    for earlier in (story.__cause__, story.__context__):
        if earlier is not None:
            _keep_users_frames(earlier)


def _named(module: ModuleType, target: str, name: str) -> Mainspring:
    found = getattr(module, name, None)
    if isinstance(found, Mainspring):
        return found
    others = ", ".join(_apps(module)) or "none"
    what = f"has no {name!r}" if found is None else f"has a {name!r}, but it is not a Mainspring app"
    raise AppLoadError(f"{target} {what}. The apps in it: {others}")


def _only(module: ModuleType, target: str) -> Mainspring:
    apps = _apps(module)
    if not apps:
        raise AppLoadError(f"{target} has no app: it needs a line like `app = Mainspring()`")
    if len(apps) > 1:
        names = ", ".join(apps)
        raise AppLoadError(f"{target} has several apps ({names}): say which, e.g. {target}:{next(iter(apps))}")
    return next(iter(apps.values()))


def _apps(module: ModuleType) -> dict[str, Mainspring]:
    """The apps of a module by name; one that has several names by the first of them."""
    apps: dict[str, Mainspring] = {}
    for name, value in vars(module).items():
        if isinstance(value, Mainspring) and value not in apps.values():
            apps[name] = value
    return apps
