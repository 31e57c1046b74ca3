"""Starts, describes, scales and stops services, and makes their keys."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from headway.domain.cluster import Cluster
from headway.domain.serving.service_proxy import SERVICE_PORT, ProxyReading, ServiceReading, service_path
from headway.errors import Conflict, NotAllowed, Refused
from headway.jobs.serving.scaling import spare_replicas
from headway.jobs.serving.service_file import Service, read_service, replica_run
from headway.jobs.submission.prepare_job import PreparedJob, prepare_run
from headway.schemas.serving.services import (
    ReplicaOut,
    ServiceEventOut,
    ServiceIn,
    ServiceKeyIn,
    ServiceKeyOut,
    ServiceOut,
    ServiceScaleIn,
)
from headway.schemas.submission.run_request import ScriptLine
from headway.services.access.audit import write_audit_line
from headway.services.access.ownership_rights import authorize_action, cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.job_secrets.requested import require_secrets
from headway.services.jobs.submission import new_folder_suffix, node_offer
from headway.services.serving.rounds import PORTS
from headway.services.serving.stored_service import StoredService, server_name
from headway.services.storage.declared_environments import runtime_of_command
from headway.store import ReplicaRow, ServiceKeyRow, ServiceRow

SHOWN_EVENTS = 50


async def start_service(state: AppState, who: Principal, name: str, request: ServiceIn) -> ServiceOut:
    """Checks and stores a service, or a new version of the running one of this name; its rounds start the replicas. With
    `dry_run` nothing is stored. Raises InvalidSpec, and Refused with all faults of a replica's job."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    service = read_service(request.document)
    team = _team(cluster, service, user)
    found = await runtime_of_command(state, cluster, service, user)
    service = service.model_copy(update={"environment": found.environment, "container": found.container})
    run = replica_run(service, 1, path=service_path(team, service.name), port=PORTS.start)
    prepared = prepare_run(run, cluster, user, "check", offer=node_offer(state, cluster))
    await require_secrets(state, cluster, prepared.request, user)
    stored = StoredService(service, new_folder_suffix(who), request.bundle, request.git)
    limits = service.replicas
    if request.dry_run:
        now = state.clock()
        row = ServiceRow(
            "", name, team, service.name, who.person, user, now, stored.document(), 1, "planned", "", limits.min, limits.max,
            limits.min, None, None,
        )  # fmt: skip
        return service_out(state, row, ()).model_copy(update={"script": _script(prepared), "warning": found.warning})
    row = await state.store.services.put(
        name,
        team,
        service.name,
        person=who.person,
        user=user,
        document=stored.document(),
        least=limits.min,
        most=limits.max,
    )
    await write_audit_line(state, who, "service", name, service=row.proxy_name, user=user, version=row.version)
    await state.store.services.log_event(name, row.id, f"{who.person} gave the file of version {row.version}")
    state.services_due.set()
    shown = service_out(state, row, await state.store.services.replicas(row.id))
    return shown.model_copy(update={"warning": found.warning})


def _script(prepared: PreparedJob) -> list[ScriptLine]:
    lines = prepared.script.lines if prepared.script else ()
    return [ScriptLine(text=line.text, origin=line.origin) for line in lines]


def _team(cluster: Cluster, service: Service, user: str) -> str:
    """Returns the team of a service: the one in its file, or the user's first; for a user without teams, the user's name. Raises
    Refused for a team that the user is not in."""
    teams = next((one.teams for one in cluster.users if one.name == user), ())
    if service.team and service.team not in teams:
        raise Refused(f"team: {user} is not in {service.team}", hint=f"teams of {user}: {', '.join(teams) or 'none'}")
    return service.team or (teams[0] if teams else user)


async def list_services(state: AppState, rows: Sequence[ServiceRow]) -> list[ServiceOut]:
    """Returns stored services with the replicas that have not ended."""
    replicas = await state.store.services.replicas(*(row.id for row in rows))
    return [
        service_out(state, row, [one for one in replicas if one.service == row.id and one.ended_at is None])
        for row in rows
    ]


async def get_service(state: AppState, name: str, service: str) -> ServiceOut:
    """Returns the service with this id, TEAM:NAME or name. Raises NotFound."""
    await state.clusters.row(name)
    row = await state.store.services.get(name, service)
    return service_out(state, row, await state.store.services.replicas(row.id))


async def get_service_with_file(state: AppState, who: Principal, name: str, service: str) -> ServiceOut:
    """Returns the service with this id, TEAM:NAME or name, with its file if the person may change it. Raises NotFound."""
    found = await get_service(state, name, service)
    found.events = [
        ServiceEventOut(at=one.at, text=one.text) for one in await state.store.services.events(found.id, SHOWN_EVENTS)
    ]
    with contextlib.suppress(NotAllowed):
        row = await _to_change(state, who, name, found.id, "read the file of")
        found.file = StoredService.of(row).document()["file"]
    return found


async def stop_service(state: AppState, who: Principal, name: str, service: str) -> ServiceOut:
    """Starts no further replica; the rounds drain and end those that run. Raises Conflict if the service has ended."""
    row = await _to_change(state, who, name, service, "stop")
    if not await state.store.services.stop(row.id, f"{who.person} stopped it"):
        raise Conflict(f"service {row.name} is stopped already", hint=f"headway serve show {row.name}")
    await write_audit_line(state, who, "service-stop", name, service=row.proxy_name, of=row.user)
    state.services_due.set()
    return await get_service(state, name, row.id)


async def scale_service(
    state: AppState, who: Principal, name: str, service: str, request: ServiceScaleIn
) -> ServiceOut:
    """Changes how many replicas a service has, until its file is given again. Raises Conflict if the service is stopped."""
    row = await _to_change(state, who, name, service, "scale")
    if row.state != "running":
        raise Conflict(f"service {row.name} is stopped", hint="headway serve up starts it again")
    await state.store.services.change(row.id, least=request.min, most=request.max)
    text = f"{who.person} set {request.min} to {request.max} replicas"
    await state.store.services.log_event(name, row.id, text)
    await write_audit_line(state, who, "service-scale", name, service=row.proxy_name, min=request.min, max=request.max)
    state.services_due.set()
    return await get_service(state, name, row.id)


async def create_key(state: AppState, who: Principal, name: str, service: str, request: ServiceKeyIn) -> ServiceKeyOut:
    """Returns a new key of a service. Only this answer has its text."""
    row = await _keys_to_change(state, who, name, service, "make a key of")
    key, text = await state.store.services.create_key(
        name, row.proxy_name, request.label, who.person, request.per_minute
    )
    await write_audit_line(
        state,
        who,
        "service-key",
        name,
        service=row.proxy_name,
        key=key.id,
        label=request.label,
        per_minute=request.per_minute,
    )
    state.services_due.set()
    return key_out(key).model_copy(update={"key": text})


async def list_keys(state: AppState, who: Principal, name: str, service: str) -> list[ServiceKeyOut]:
    """Returns the keys of a service that were not revoked."""
    row = await _keys_to_change(state, who, name, service, "list the keys of")
    return [key_out(key) for key in await state.store.services.keys(name, row.proxy_name)]


async def revoke_key(state: AppState, who: Principal, name: str, service: str, key: str) -> None:
    """Revokes a key; the proxy refuses it from the next round on. Raises NotFound."""
    row = await _keys_to_change(state, who, name, service, "revoke a key of")
    await state.store.services.revoke_key(name, row.proxy_name, key)
    await write_audit_line(state, who, "service-key-revoke", name, service=row.proxy_name, key=key)
    state.services_due.set()


async def _to_change(state: AppState, who: Principal, name: str, service: str, what: str) -> ServiceRow:
    """Returns the service if the person may act on it. Raises NotFound and NotAllowed."""
    cluster = await cluster_to_work_on(state, name, who)
    row = await state.store.services.get(name, service)
    await authorize_action(state, cluster, who, row, f"{what} service {row.name}")
    return row


async def _keys_to_change(state: AppState, who: Principal, name: str, service: str, what: str) -> ServiceRow:
    """Returns the service if the person may act on its keys. Keys belong to TEAM:NAME: the rights are those on the running
    service of this team and name, also if `service` is the id of an ended one. Raises NotFound and NotAllowed."""
    row = await state.store.services.get(name, service)
    return await _to_change(state, who, name, row.proxy_name, what)


def key_out(key: ServiceKeyRow) -> ServiceKeyOut:
    """Returns the answer about a key."""
    return ServiceKeyOut(
        id=key.id,
        service=key.service.replace(":", "/"),
        label=key.label,
        person=key.person,
        created_at=key.at,
        per_minute=key.per_minute,
    )


def service_out(state: AppState, row: ServiceRow, replicas: Sequence[ReplicaRow]) -> ServiceOut:
    """Returns the answer about a service."""
    service = StoredService.of(row).service
    spare = spare_replicas(replicas, row.wanted, service.replicas.standby, row.version)
    proxy = state.proxies.get(row.cluster, ProxyReading())
    reading = proxy.services.get(row.proxy_name, ServiceReading())
    if row.ended_at is not None or not row.id:
        reading = ServiceReading()
    return ServiceOut(
        id=row.id,
        cluster=row.cluster,
        team=row.team,
        name=row.name,
        person=row.person,
        user=row.user,
        created_at=row.at,
        ended_at=row.ended_at,
        state=row.state,
        why=row.why,
        version=row.version,
        url=_url(proxy.address, row),
        health=service.health,
        min=row.least,
        max=row.most,
        wanted=row.wanted if row.state == "running" else 0,
        healthy=sum(one.state == "serving" for one in replicas),
        standby=service.replicas.standby if row.state == "running" else 0,
        replicas=[_replica_out(one, reading, one.number in spare) for one in replicas],
        active=reading.active,
        requests=reading.requests,
        errors_4xx=reading.errors_4xx,
        errors_5xx=reading.errors_5xx,
        retries=reading.retries,
        first_byte_ms=reading.first_byte_ms,
        total_ms=reading.total_ms,
    )


def _url(head: str, row: ServiceRow) -> str:
    """Returns the address of a service: the proxy on the head."""
    return f"http://{head}:{SERVICE_PORT}{service_path(row.team, row.name)}" if head else ""


def _replica_out(replica: ReplicaRow, reading: ServiceReading, spare: bool) -> ReplicaOut:
    server = reading.servers.get(server_name(replica))
    return ReplicaOut(
        number=replica.number,
        version=replica.version,
        state="standby" if spare else replica.state,
        since=replica.since,
        job_id=replica.job_id,
        node=replica.node,
        port=replica.port,
        sessions=server.sessions if server else 0,
        requests=server.requests if server else 0,
        why=replica.why,
        failed=replica.failed,
        ended_at=replica.ended_at,
    )
