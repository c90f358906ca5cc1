"""Django's admin links to the web UI; `manage.py mainspring` works on the app; from Django 6 on, `django.tasks` submits
runs. Each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SETTINGS = """
import asyncio, sys
from pathlib import Path
import django
from django.conf import settings
from mainspring import Retry
sys.path.insert(0, str(Path(__file__).parent))
settings.configure(
    SECRET_KEY="x" * 50, USE_TZ=True, ROOT_URLCONF="urls", MAINSPRING_APP="work:app",
    MAINSPRING_UI="https://jobs.example.org/ui/",
    INSTALLED_APPS=["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
                    "django.contrib.sessions", "django.contrib.messages", "mainspring.integrations.django", "shop"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware",
                "django.contrib.auth.middleware.AuthenticationMiddleware",
                "django.contrib.messages.middleware.MessageMiddleware"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
                "OPTIONS": {"context_processors": ["django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages"]}}],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.sqlite3"}},
    TASKS={"default": {"BACKEND": "mainspring.integrations.django.backend.MainspringBackend",
                       "OPTIONS": {"retry": Retry(0)}}},
    ALLOWED_HOSTS=["testserver"],
)
django.setup()
"""
FILES = {
    "urls.py": "from django.contrib import admin\nfrom django.urls import path\n"
    "urlpatterns = [path('admin/', admin.site.urls)]\n",
    "work.py": "from mainspring import Mainspring\n"
    "app = Mainspring('sqlite:///work.db', name='shop', queues=['default', 'slow'])\n",
    "shop/__init__.py": "",
}
ADMIN = """
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
call_command("makemigrations", "--check", verbosity=0)
call_command("migrate", verbosity=0)
call_command("check", verbosity=0)
User.objects.create_superuser("ann", password="x")
User.objects.create_user("bob", password="x", is_staff=True)
client = Client()
client.login(username="ann", password="x")
assert b"/admin/mainspring/runs/" in client.get("/admin/").content
answer = client.get("/admin/mainspring/runs/")
assert (answer.status_code, answer["Location"]) == (302, "https://jobs.example.org/ui/"), answer
assert client.get("/admin/mainspring/runs/add/").status_code == 403
client.login(username="bob", password="x")
assert b"/admin/mainspring/runs/" not in client.get("/admin/").content
with __import__("django").test.override_settings(MAINSPRING_UI=""):
    client.login(username="ann", password="x")
    assert b"/admin/mainspring/runs/" not in client.get("/admin/").content
"""
COMMANDS = """
import contextlib, io
from django.core.management import call_command
said = io.StringIO()
with contextlib.redirect_stderr(said):
    call_command("mainspring", "run", "submit", "--command", "true")
assert Path("work.db").exists(), "the command did not use the store of the app"
assert "python manage.py mainspring run wait " in said.getvalue(), said.getvalue()
call_command("mainspring", "job", "list")
assert not Path("mainspring.db").exists()
"""
SHOP_TASKS = """
from django.tasks import task

@task
def add(a, b=0):
    return a + b

@task(takes_context=True, priority=50)
async def describe(context, name):
    return [name, context.task_result.id, context.attempt]

@task(queue_name="slow")
def fail():
    raise KeyError("no such order")
"""
TASKS = """
from datetime import timedelta
from django.tasks import signals, task_backends
from django.tasks.exceptions import TaskResultDoesNotExist
from django.utils import timezone
from shop.tasks import add, describe, fail
from work import app

seen = []
def listen(signal, name):
    def note(sender, task_result, **_):
        seen.append((name, task_result.task.name, task_result.status))
    signal.connect(note, weak=False)
listen(signals.task_enqueued, "enqueued")
listen(signals.task_started, "started")
listen(signals.task_finished, "finished")

summed, described, failed = add.enqueue(1, b=2), describe.enqueue("x"), fail.enqueue()
assert (summed.status, summed.args, summed.kwargs) == ("READY", [1], {"b": 2}), summed
later = add.using(run_after=timezone.now() + timedelta(hours=1), priority=-100).enqueue(5)
stored = app.sync(app.runs.get, later.id)
assert (stored.state, stored.priority, stored.task) == ("pending", 9, "shop.tasks.add"), stored
assert app.sync(app.runs.get, described.id).priority == 3
assert app.sync(app.runs.get, failed.id).queue == "slow"
assert set(app.tasks) == {"shop.tasks.add", "shop.tasks.describe", "shop.tasks.fail"}

async def work():
    await app.runs.cancel(later.id, "not needed")
    async with app.running():
        for each in (summed, described, failed):
            async with asyncio.timeout(60):
                while not (await each.task.aget_result(each.id)).is_finished:
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            while sum(name == "finished" for name, *_ in seen) < 3:
                await asyncio.sleep(0.01)
app.sync.close()
asyncio.run(work())

for each in (summed, described, failed, later):
    each.refresh()
assert (summed.return_value, summed.attempts) == (3, 1), summed
assert described.return_value == ["x", described.id, 1], described
assert (failed.status, failed.errors[0].exception_class) == ("FAILED", KeyError), failed
assert "no such order" in failed.errors[0].traceback
assert later.status == "FAILED"
assert sorted(seen)[:4] == [("enqueued", "add", "READY")] * 2 + [
    ("enqueued", "describe", "READY"), ("enqueued", "fail", "READY")], seen
assert ("started", "describe", "RUNNING") in seen
assert {("finished", "add", "SUCCESSFUL"), ("finished", "fail", "FAILED")} <= set(seen), seen
foreign = app.sync(app.runs.submit, "elsewhere")
for unknown in ("nothing", foreign.run_id):
    try:
        task_backends["default"].get_result(unknown)
    except TaskResultDoesNotExist:
        continue
    raise AssertionError(unknown)
app.sync.close()
"""


def play(folder: Path, script: str) -> None:
    """Run a script in a project of its own."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "scenario.py").write_text(SETTINGS + script)
    command = [sys.executable, "-W", "error::ResourceWarning", "scenario.py"]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_admin_links_to_the_web_ui(tmp_path: Path) -> None:
    play(tmp_path, ADMIN)


def test_commands_use_the_store_of_the_app_and_hints_name_their_program(tmp_path: Path) -> None:
    play(tmp_path, COMMANDS)


@pytest.mark.skipif(
    find_spec("django.tasks") is None, reason="django.tasks came with Django 6, which needs Python 3.12"
)
def test_tasks_of_django_are_tasks_of_the_app(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tasks.py").write_text(SHOP_TASKS)
    play(tmp_path, TASKS)
