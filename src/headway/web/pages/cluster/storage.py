"""A cluster's volumes, datasets and software environments."""

from __future__ import annotations

from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, State
from headway.domain.dataset import format_bytes
from headway.domain.storage.volume_space import FULL, NEARLY_FULL
from headway.services.access.role_rights import Right
from headway.services.storage.datasets import list_versions
from headway.services.storage.environments import list_environments
from headway.services.storage.volumes import get_storage
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()


@router.get("/clusters/{name}/storage")
async def storage_page(name: str, state: State, who: Anyone) -> Response:
    """Returns the page of volumes, datasets and software environments."""
    found = await get_storage(state, who, name)
    versions = sorted(await list_versions(state, name), key=lambda version: (version.name, -version.version))
    return render(
        "storage.html",
        viewer=who,
        name=name,
        tab="storage",
        found=found,
        versions=versions,
        environments=sorted(await list_environments(state, name), key=lambda one: (one.name, -one.version)),
        size=format_bytes,
        nearly_full=NEARLY_FULL,
        full=FULL,
        may_measure=who.may(Right.OPERATE_NODES),
        may_add=who.may(Right.ADMIN),
        may_build=who.may(Right.RUN_JOBS),
    )
