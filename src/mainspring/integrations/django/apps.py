"""What makes this package an application of Django."""

from __future__ import annotations

from django.apps import AppConfig


class MainspringConfig(AppConfig):  # type: ignore[misc] # Django has no types
    """Brings `manage.py mainspring`."""

    name = "mainspring.integrations.django"
    label = "mainspring"
    verbose_name = "Mainspring"
