"""What makes this package an application of Django."""

from __future__ import annotations

from importlib.util import find_spec

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class MainspringConfig(AppConfig):
    """Brings `manage.py mainspring`, a link in the admin, and, from Django 6 on, a backend of `django.tasks`."""

    name = "mainspring.integrations.django"
    label = "mainspring"
    verbose_name = "Mainspring"

    def ready(self) -> None:
        """Let the app know the tasks of Django's, wherever it is loaded as an app that executes them."""
        if find_spec("django.tasks") is None:
            return
        from django.tasks import task_backends

        from mainspring.integrations.django.backend import MainspringBackend

        backends = [each for each in task_backends.all() if isinstance(each, MainspringBackend)]
        if backends:
            autodiscover_modules("tasks")
        for backend in backends:
            backend.load()
