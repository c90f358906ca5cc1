"""Django: an app named in the settings, submissions that wait for or join the transaction, and `manage.py mainspring`.

INSTALLED_APPS = [..., "mainspring.integrations.django"]
MAINSPRING_APP = "shop.work:app"

with transaction.atomic():
    order.save()
    submit_on_commit(send_invoice, order.pk)
"""

from __future__ import annotations

from typing import Any, ParamSpec, TypeVar

from mainspring.errors import InvalidInput
from mainspring.sdk.app import Mainspring
from mainspring.sdk.handle import RunHandle
from mainspring.sdk.loading import load_app
from mainspring.sdk.task import BoundTask, Task

P = ParamSpec("P")
R = TypeVar("R")


def get_app() -> Mainspring:
    """The app that the setting MAINSPRING_APP names."""
    from django.conf import settings  # settings are read when they are needed, not at import

    name = getattr(settings, "MAINSPRING_APP", None)
    if not isinstance(name, str):
        raise InvalidInput("MAINSPRING_APP", name, "names no app", 'set it to "module:app" in the settings of Django')
    return load_app(name)


def submit_on_commit(task: BoundTask[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Submit a run once the transaction of the default database has committed; never if it is rolled back.

    Without a transaction it is submitted at once. A crash between the commit and the submission loses it:
    `submit_in_transaction` does not, where both share one PostgreSQL database.
    """
    from django.db import transaction

    transaction.on_commit(lambda: task.app.sync(task.submit, *args, **kwargs))


def submit_in_transaction(using: str, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
    """Submit a run in the open transaction of a database of Django's: it is accepted if, and only if, that commits.

    `using` names the connection, such as `default`. The store of the app must be the same PostgreSQL database.
    """
    from django.db import connections

    wrapped = connections[using]
    wrapped.ensure_connection()
    return task.app.sync(task.options(connection=wrapped.connection).submit, *args, **kwargs)
