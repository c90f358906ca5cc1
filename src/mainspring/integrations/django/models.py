"""What Django's admin needs to list Mainspring: a model without a table."""

from __future__ import annotations

from django.db import models


class Runs(models.Model):
    """Stands for the runs of the app, which are in its store."""

    class Meta:
        """No table, no migration, and no permission but the one to look."""

        managed = False
        default_permissions = ("view",)
        verbose_name = verbose_name_plural = "runs"
