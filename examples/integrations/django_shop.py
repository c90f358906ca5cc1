"""A whole Django project in one file. It submits after a transaction of Django's.

python django_shop.py mainspring up        # scheduler, worker, API and web UI with Django's settings
python django_shop.py mainspring job list
"""

import os
import sys
from pathlib import Path

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import transaction

from mainspring import Mainspring
from mainspring.integrations.django import submit_on_commit

app = Mainspring(os.environ.get("SHOP_STORE", "sqlite:///shop.db"), name="shop")


@app.task
def send_invoice(order: int) -> str:
    """The work, in a worker: import models here, when Django is set up."""
    return f"invoice for {order}"


def place_order(order: int, *, in_stock: bool = True) -> None:
    """What a view does: the invoice is submitted only if the transaction commits."""
    with transaction.atomic():
        submit_on_commit(send_invoice, order)
        if not in_stock:
            raise LookupError(f"order {order} is out of stock")


def configure() -> None:
    """The settings that a project keeps in settings.py."""
    if not settings.configured:
        settings.configure(
            INSTALLED_APPS=["mainspring.integrations.django"],
            MAINSPRING_APP=f"{Path(__file__).resolve()}:app",
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}},
            USE_TZ=True,
        )
    django.setup()


if __name__ == "__main__":
    configure()
    execute_from_command_line(sys.argv)
