"""SQLAlchemy and Django: submissions that live and die with the transaction of the caller, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from mainspring import Mainspring
from mainspring.integrations.sqlalchemy import submit, submit_blocking

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "integrations" / "django_shop.py"


def make_app(url: str) -> Mainspring:
    app = Mainspring(url)

    @app.task
    def bill(order: int) -> int:
        return order

    return app


async def count(app: Mainspring) -> int:
    return len([run async for run in app.runs.list()])


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_run_is_accepted_if_and_only_if_the_async_session_commits(postgres_url: str, driver: str) -> None:
    app = make_app(postgres_url)
    task = app.tasks["bill"]

    async def scenario() -> None:
        await app.open()
        engine = create_async_engine(postgres_url.replace("postgresql://", f"postgresql+{driver}://"))
        async with AsyncSession(engine) as session:
            await submit(session, task, order=1)
            assert await count(app) == 0
            await session.rollback()
            async with session.begin():
                handle = await submit(session, task, order=2)
                assert await count(app) == 0
        assert await count(app) == 1
        assert (await app.runs.get(handle.id)).args == {"order": 2}
        await engine.dispose()
        await app.close()

    asyncio.run(scenario())


def test_a_session_without_a_loop_joins_too(postgres_url: str) -> None:
    app = make_app(postgres_url)
    app.sync(app.open)
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        submit_blocking(session, app.tasks["bill"], order=1)
        session.rollback()
        submit_blocking(session, app.tasks["bill"], order=2)
        session.execute(text("SELECT 1"))
        session.commit()
    assert [run.args for run in app.sync(app.runs.list)] == [{"order": 2}]
    engine.dispose()
    app.sync.close()


DJANGO = """
import os, sys
sys.path.insert(0, {folder!r})
import django_shop
from django.conf import settings
from urllib.parse import urlsplit
url = urlsplit(os.environ["SHOP_STORE"])
settings.configure(
    INSTALLED_APPS=["mainspring.integrations.django"],
    MAINSPRING_APP="django_shop:app",
    DATABASES={{"default": {{
        "ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:], "HOST": url.hostname, "PORT": url.port,
        "USER": url.username, "PASSWORD": url.password or "",
    }}}},
)
django_shop.configure()
from django.core.management import call_command
from django.db import connection, transaction
from mainspring.integrations.django import get_app, submit_in_transaction, submit_on_commit
app, task = get_app(), django_shop.send_invoice
assert app is django_shop.app
app.sync(app.open)
for end in ("commit", "rollback"):
    try:
        with transaction.atomic():
            submit_in_transaction("default", task, 1)
            submit_on_commit(task, 2)
            submit_on_commit(task.options(priority=1), order=3)
            assert len(list(app.sync(app.runs.list))) == (0 if end == "commit" else 3)
            if end == "rollback":
                raise RuntimeError
    except RuntimeError:
        pass
django_shop.place_order(4)
try:
    django_shop.place_order(5, in_stock=False)
except LookupError:
    pass
print(sorted(run.args["order"] for run in app.sync(app.runs.list)), flush=True)
app.sync.close()
connection.close()
call_command("mainspring", "run", "list", "--json", "--store", os.environ["SHOP_STORE"])
call_command("mainspring", "job", "sync", "--store", os.environ["SHOP_STORE"])
"""


def test_django_submits_after_and_within_its_transaction_and_has_the_commands(
    postgres_url: str, tmp_path: Path
) -> None:
    script = tmp_path / "scenario.py"
    script.write_text(DJANGO.format(folder=str(EXAMPLE.parent)))
    environment = {"SHOP_STORE": postgres_url, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(script)],
        check=False,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    first, _, rest = done.stdout.partition("\n")
    assert first == "[1, 2, 3, 4]"
    assert rest.count('"task": "send_invoice"') == 4
