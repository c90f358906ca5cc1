"""A Django shop in one file: an order and its receipt commit together, and a worker sends the receipt.

`python examples/django/shop.py demo` plays it on files in the working folder.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import django
from django.conf import settings
from django.db import connection, models, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

from mainspring import Mainspring

if not settings.configured:
    settings.configure(
        SECRET_KEY="only for this example",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()

app = Mainspring("sqlite:///shop.db", name="shop")


class Order(models.Model):  # type: ignore[misc]  # Django has no types.
    """What a customer bought."""

    item = models.CharField(max_length=100)
    receipt_sent = models.BooleanField(default=False)

    class Meta:
        app_label = "shop"


@app.task
def send_receipt(order: int) -> int:
    """Send the receipt of one order. It runs in a thread of the worker, where Django's ORM may block."""
    sent: int = Order.objects.filter(pk=order).update(receipt_sent=True)
    connection.close()
    return sent


def place_order(request: HttpRequest) -> JsonResponse:
    """Store an order, and submit its receipt once the transaction has committed."""
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        # The key is the order, so a repeated call adds no second receipt.
        submission = send_receipt.options(idempotency_key=f"receipt/{order.pk}")
        transaction.on_commit(lambda: app.sync(submission.submit, order.pk))
        if request.POST["item"] == "out of stock":
            transaction.set_rollback(True)
            return JsonResponse({"error": "out of stock"}, status=409)
    return JsonResponse({"order": order.pk}, status=201)


urlpatterns = [path("orders", place_order)]


async def _work_off() -> list[Any]:
    """Run a worker until all receipts are sent; `mainspring up examples/django/shop.py` does it in production."""
    async with app.running(schedule=False):
        return [await app.runs.wait(run.run_id, timeout=60) async for run in app.runs.list()]


def demo() -> None:
    """Place two orders, one of which is rolled back, and send the receipts."""
    from django.test import Client  # only the demo needs it

    with connection.schema_editor() as editor:
        editor.create_model(Order)
    client = Client()
    for item in ("lamp", "out of stock"):
        print(item, client.post("/orders", {"item": item}).status_code)
    app.sync.close()
    runs = asyncio.run(_work_off())
    print("receipts", [run.state for run in runs], "orders", list(Order.objects.values_list("item", "receipt_sent")))


if __name__ == "__main__" and sys.argv[1:] == ["demo"]:
    os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    demo()
