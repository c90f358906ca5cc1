"""Tasks of one name in two programs on one store: either would execute the other's runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.core.runs.fitting import find_twins
from mainspring.errors import Conflict

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring


async def check_twins(app: Mainspring) -> list[str]:
    """Warnings of tasks that live workers have from other modules. Conflict if these are another app's, unless the
    setting `same_tasks` allows it: under one name of an app, it may be a module that was renamed."""
    store, namespace, warnings = await app.open(), app.settings.namespace, []
    alive_after = store.now() - app.settings.worker_dead_after
    for name in sorted(app.tasks):
        own = app.tasks[name].notice()
        for twin in find_twins(app.name, own, await store.announced(namespace, name), alive_after):
            clash = (
                f"task {name} of module {own.module} is also a task of app {twin.app}, in module {twin.module}: "
                "workers of either would execute the runs of both"
            )
            if twin.app != app.name and app.settings.same_tasks == "refuse":
                remedy = f'give one another name (@app.task(name="{app.name}.{name}")) or a namespace of its own'
                raise Conflict(f"{clash}. {remedy[0].upper()}{remedy[1:]}, or set same_tasks=warn")
            warnings.append(clash)
    return warnings
