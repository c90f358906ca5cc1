"""A link in Django's admin: "Mainspring: runs" leads to the web UI, whose address is the setting MAINSPRING_UI."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponseRedirect

from mainspring.integrations.django.models import Runs


@admin.register(Runs)
class RunsAdmin(admin.ModelAdmin):
    """Leads elsewhere: nothing can be changed here. Without the setting it is not shown."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether the index shows it: to staff with the permission to see runs."""
        return bool(getattr(settings, "MAINSPRING_UI", "")) and bool(super().has_module_permission(request))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: runs are submitted."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: object = None) -> HttpResponseRedirect:
        """Lead to the web UI."""
        return HttpResponseRedirect(str(getattr(settings, "MAINSPRING_UI", "")) or "../..")
