"""Services: HTTP servers as jobs, behind one address that outlives them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.pagination import ANY, Page, Text, Words, contains, fits
from headway.schemas.base import API_PREFIX
from headway.schemas.serving.service_metrics import MOST_MINUTES, ServiceMetricsOut
from headway.schemas.serving.services import ServiceIn, ServiceKeyIn, ServiceKeyOut, ServiceOut, ServiceScaleIn
from headway.services.serving import metrics
from headway.services.serving import services as service_calls

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/services", tags=["jobs"])


@router.post("", status_code=201, name="start")
async def start_service(name: str, request: ServiceIn, state: State, who: Member) -> ServiceOut:
    """Starts a service, or moves the running one of this team and name to a new version. With `dry_run` it returns the
    script of a replica."""
    return await service_calls.start_service(state, who, name, request)


@router.get("")
async def list_services(
    name: str, state: State, _who: Anyone, page: Page, person: Words = ANY, q: Text = ""
) -> list[ServiceOut]:
    """Returns the services that have not ended, the latest first."""
    await state.clusters.row(name)
    rows = await state.store.services.running(name)
    found = [row for row in rows if fits(row.person, person) and contains(q, row.name)]
    return await service_calls.list_services(state, page.cut(found, lambda row: (row.at, row.id), newest=True))


@router.get("/{service}")
async def get_service(name: str, service: str, state: State, who: Anyone) -> ServiceOut:
    """Returns the service with this id, TEAM:NAME or name. Those who may change it get its file, too."""
    return await service_calls.get_service_with_file(state, who, name, service)


@router.get("/{service}/metrics", name="metrics")
async def service_metrics(
    name: str, service: str, state: State, who: Anyone, minutes: Annotated[int, Query(ge=1, le=MOST_MINUTES)] = 60
) -> ServiceMetricsOut:
    """Returns requests, errors, times and tokens of the last minutes, of all versions and of each; its cost to those who may
    see the usage of its team."""
    return await metrics.service_metrics(state, who, name, service, minutes)


@router.post("/{service}/stop", name="stop")
async def stop_service(name: str, service: str, state: State, who: Member) -> ServiceOut:
    """Starts no further replica; those that run finish their requests and end."""
    return await service_calls.stop_service(state, who, name, service)


@router.post("/{service}/scale", name="scale")
async def scale_service(name: str, service: str, request: ServiceScaleIn, state: State, who: Member) -> ServiceOut:
    """Changes how many replicas the service has, until its file is given again."""
    return await service_calls.scale_service(state, who, name, service, request)


@router.post("/{service}/keys", status_code=201, name="create_key")
async def create_key(name: str, service: str, request: ServiceKeyIn, state: State, who: Member) -> ServiceKeyOut:
    """Returns a new key that opens the service. Only this answer has its text."""
    return await service_calls.create_key(state, who, name, service, request)


@router.get("/{service}/keys", name="list_keys")
async def list_keys(name: str, service: str, state: State, who: Member) -> list[ServiceKeyOut]:
    """Returns the keys of the service that were not revoked."""
    return await service_calls.list_keys(state, who, name, service)


@router.delete("/{service}/keys/{service_key}", status_code=204, name="revoke_key")
async def revoke_key(name: str, service: str, service_key: str, state: State, who: Member) -> None:
    """Revokes a key. The proxy refuses it within seconds."""
    await service_calls.revoke_key(state, who, name, service, service_key)
