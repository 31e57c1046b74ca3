"""Models as people see them, their approvals, and what people ask of promotions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.domain.cluster import Cluster
from headway.errors import HeadwayError, NotAllowed, NotFound, Refused
from headway.jobs.promotions.gates_file import RERUN, Gates, gate_job_run, read_gates, with_required
from headway.jobs.submission.prepare_job import prepare_run
from headway.schemas.storage.models import (
    ApprovalIn,
    ApprovalOut,
    GateOut,
    ManifestOut,
    ModelOut,
    PromotionIn,
    PromotionOut,
    RequiredGatesIn,
    RequiredGatesOut,
    SigningKeyOut,
)
from headway.services.access.audit import write_audit_line
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.job_secrets.requested import require_secrets
from headway.services.jobs.submission import new_folder_suffix, node_offer
from headway.services.models.gate_facts import check_version, require_rerunnable
from headway.services.models.model_versions import (
    digest_of_files,
    file_digests,
    find_team,
    list_team_models,
    read_model,
    read_version,
    registry,
    require_team,
    teams_of,
    version_of_alias,
)
from headway.services.models.promotion_rights import approver_roles, user_for_gates
from headway.services.models.signing import cluster_public_key
from headway.services.models.stored_promotion import StoredPromotion
from headway.services.storage.declared_environments import runtime_of_command
from headway.store.jobs.promotions import ApprovalRow, PromotionRow, RequiredGatesRow


async def list_models(state: AppState, who: Principal, name: str) -> list[ModelOut]:
    """Returns the models of the person's teams, each with its latest version. Raises Unreachable if MLflow does not answer."""
    cluster = await cluster_to_work_on(state, name, who)
    found: list[ModelOut] = []
    for team in teams_of(cluster, who):
        found += await list_team_models(await registry(state, cluster, team), team)
    return sorted(found, key=lambda one: (one.name, one.team))


async def get_model(state: AppState, who: Principal, name: str, team: str, model: str) -> ModelOut:
    """Returns a model with its newest versions, their jobs and metrics, and approvals. Raises NotFound, and Unreachable."""
    cluster = await cluster_to_work_on(state, name, who)
    require_team(cluster, who, team)
    api = await registry(state, cluster, team)
    found = await read_model(api, team, model)
    for one in found.versions[:_WITH_METRICS]:
        version = await read_version(api, model, one.version)
        one.job, one.metrics = version.source.job, dict(version.source.metrics)
    rows = await state.store.promotions.approvals(name, team, model)
    return found.model_copy(update={"approvals": [ApprovalOut.model_validate(row) for row in rows]})


_WITH_METRICS = 20  # versions of a model whose runs are asked for


async def team_of_model(state: AppState, who: Principal, name: str, model: str) -> str:
    """Returns the team that has this model, of those whose models the person may see. Raises NotFound, Conflict if several have
    it, and Unreachable."""
    return await find_team(state, await cluster_to_work_on(state, name, who), who, model)


async def start_promotion(state: AppState, who: Principal, name: str, request: PromotionIn) -> PromotionOut:
    """Checks and stores a promotion; its rounds carry it out. With `dry_run` it returns what the gates see that need no job, and
    nothing is stored. Raises InvalidSpec, NotFound, Conflict, Refused with the faults of a job, TooManyAtOnce, Unreachable."""
    cluster = await cluster_to_work_on(state, name, who)
    gates = read_gates(request.gates)
    team = request.team or await find_team(state, cluster, who, request.model)
    user = user_for_gates(cluster, who, team, request.user)
    api = await registry(state, cluster, team)
    version = await read_version(api, request.model, request.version)
    required = (await state.store.promotions.required_gates(name, team, request.to)).document
    gates = with_required(gates, read_gates(required))
    if RERUN in gates.job_names():
        await require_rerunnable(state, cluster, who, version)
    gates = await _checked_jobs(state, cluster, gates, request, team, user)
    stored = StoredPromotion(gates, new_folder_suffix(who), request.bundle, request.git, required)
    if request.dry_run:
        row = PromotionRow(
            "", name, team, request.model, request.version, request.to, who.person, user, state.clock(),
            stored.document(), "planned",
        )  # fmt: skip
        with command_slot(state, who):  # all files are read
            files = await file_digests(api, version)
        results = await check_version(state, cluster, row, stored.gates, version, digest_of_files(files), {})
        former = await version_of_alias(api, request.model, request.to)
        return promotion_out(row, [GateOut.model_validate(one) for one in results]).model_copy(
            update={"files": digest_of_files(files), "former": former}
        )
    row = await state.store.promotions.save(
        name,
        team,
        request.model,
        request.version,
        request.to,
        person=who.person,
        user=user,
        document=stored.document(),
        key=who.idempotency_key,
        sent=request.model_dump(mode="json"),
    )
    await write_audit_line(
        state, who, "model-promote", name, promotion=row.id, model=f"{team}/{row.label}", alias=row.alias
    )
    state.promotions_due.set()
    return promotion_out(row)


async def _checked_jobs(
    state: AppState, cluster: Cluster, gates: Gates, request: PromotionIn, team: str, user: str
) -> Gates:
    """Returns the gates with the versions of the environments of their jobs. Raises Refused with all faults of the jobs."""
    jobs, faults = {}, []
    for name, job in gates.jobs.items():
        try:
            found = await runtime_of_command(state, cluster, job, user)
            job = job.model_copy(update={"environment": found.environment, "container": found.container})
            run = gate_job_run(
                job, name, model=request.model, version=request.version, team=team, bundle=request.bundle, git=None
            )
            prepared = prepare_run(run, cluster, user, "check", offer=node_offer(state, cluster))
            await require_secrets(state, cluster, prepared.request, user)
        except HeadwayError as error:
            faults.append(f"job {name}: {error.message}")
        jobs[name] = job
    if faults:
        raise Refused("\n".join(faults))
    return gates.model_copy(update={"jobs": jobs})


async def approve(
    state: AppState, who: Principal, name: str, team: str, model: str, request: ApprovalIn
) -> ApprovalOut:
    """Stores the person's approval of a version with its present files, and the roles that they have now. Raises NotAllowed for
    people without a role that a gate can ask for, and TooManyAtOnce."""
    cluster = await cluster_to_work_on(state, name, who)
    roles = approver_roles(cluster, who, team)
    if not roles:
        raise NotAllowed(
            f"{who.person} may not approve models of team {team}",
            hint="ask a lead of the team, an operator or an admin",
        )
    if team not in {one.name for one in cluster.teams}:
        raise NotFound(f"{name} has no team {team}", hint=f"headway status {name}")
    api = await registry(state, cluster, team)
    version = await read_version(api, model, request.version)
    with command_slot(state, who):  # all files are read
        files = digest_of_files(await file_digests(api, version))
    row = ApprovalRow(
        name, team, model, request.version, request.name, who.person, tuple(roles), files, request.note, state.clock()
    )
    await state.store.promotions.approve(row)
    detail = {"model": f"{team}/{model}@{request.version}", "approval": request.name, "files": files}
    await write_audit_line(state, who, "model-approve", name, **detail, roles=roles)
    return ApprovalOut.model_validate(row)


async def get_required_gates(state: AppState, who: Principal, name: str, team: str, alias: str) -> RequiredGatesOut:
    """Returns the gates that an alias of a team requires. Raises NotFound for an unknown team, NotAllowed for another's."""
    require_team(await cluster_to_work_on(state, name, who), who, team)
    return _required_out(await state.store.promotions.required_gates(name, team, alias))


async def require_gates(
    state: AppState, who: Principal, name: str, team: str, alias: str, request: RequiredGatesIn
) -> RequiredGatesOut:
    """Stores the gates that all promotions of a team's models to an alias must pass. Raises InvalidSpec, NotFound for an unknown
    team, NotAllowed for people who do not lead it."""
    cluster = await cluster_to_work_on(state, name, who)
    gates = read_gates(request.gates)
    if not {"lead", "admin"} & set(approver_roles(cluster, who, team)):
        raise NotAllowed(f"{who.person} does not lead team {team}", hint="ask a lead of the team or an admin")
    require_team(cluster, who, team)
    document = gates.model_dump(mode="json", exclude_unset=True)
    row = RequiredGatesRow(name, team, alias, document, who.person, state.clock())
    await state.store.promotions.require_gates(row)
    await write_audit_line(state, who, "model-gates", name, team=team, alias=alias, gates=sorted(gates.gates))
    return _required_out(row)


def _required_out(row: RequiredGatesRow) -> RequiredGatesOut:
    return RequiredGatesOut(team=row.team, alias=row.alias, gates=dict(row.document), person=row.person, at=row.at)


async def list_promotions(
    state: AppState, who: Principal, name: str, *, team: str = "", model: str = "", limit: int = 50
) -> list[PromotionOut]:
    """Returns the promotions of the person's teams, or of one model, the latest first."""
    cluster = await cluster_to_work_on(state, name, who)
    mine = teams_of(cluster, who)
    teams = [one for one in mine if team in ("", one)]
    rows = await state.store.promotions.recent(name, teams=teams, model=model, limit=limit)
    return [promotion_out(row) for row in rows]


async def get_promotion(state: AppState, who: Principal, name: str, promotion: str) -> PromotionOut:
    """Returns a promotion. Raises NotFound, and NotAllowed for one of another team."""
    return promotion_out(await _row(state, who, name, promotion))


async def get_manifest(state: AppState, who: Principal, name: str, promotion: str) -> ManifestOut:
    """Returns the signed manifest of a promotion. Raises NotFound if it has none."""
    row = await _row(state, who, name, promotion)
    if row.state != "promoted":
        raise NotFound(
            f"promotion {row.id} has no manifest: it is {row.state}", hint=f"headway model promotions {row.id}"
        )
    return ManifestOut(manifest=row.manifest)


async def _row(state: AppState, who: Principal, name: str, promotion: str) -> PromotionRow:
    cluster = await cluster_to_work_on(state, name, who)
    row = await state.store.promotions.get(name, promotion)
    require_team(cluster, who, row.team)
    return row


async def signing_key(state: AppState, name: str) -> SigningKeyOut:
    """Returns the public key of the key that signs the manifests of a cluster."""
    await state.clusters.row(name)
    return SigningKeyOut(public_key=await cluster_public_key(state, name))


def promotion_out(row: PromotionRow, results: Sequence[GateOut] | None = None) -> PromotionOut:
    """Returns the answer about a promotion. `results`: of its gates, if they are not stored yet."""
    kept: Mapping[str, Any] = row.document
    return PromotionOut(
        id=row.id,
        cluster=row.cluster,
        team=row.team,
        model=row.model,
        version=row.version,
        alias=row.alias,
        person=row.person,
        user=row.user,
        created_at=row.at,
        ended_at=row.ended_at,
        state=row.state,
        why=row.why,
        gates=list(results) if results is not None else [GateOut.model_validate(one) for one in row.results],
        files=row.files,
        former=kept.get("former"),
        has_manifest=row.state == "promoted",
    )
