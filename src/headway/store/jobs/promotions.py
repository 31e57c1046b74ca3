"""Promotions of models, approvals of their versions, and the gates that aliases require."""

from __future__ import annotations

import hashlib
import json
import secrets as random
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, insert, select, update

from headway.errors import Conflict, NotFound
from headway.store.db import model_schema as t
from headway.store.db.transactions import StorePart, insert_into

ENDED = ("promoted", "refused")


@dataclass(frozen=True, slots=True)
class PromotionRow:
    """A promotion. `document`: the gates, and what their jobs need (see services.models.stored_promotion). `files`: digest of the
    version's files when the promotion began, "" until then. `jobs`: states of the gates' jobs by name; `results`: of the gates.
    `manifest`: the signed manifest, as JSON text, "" until all gates are passed."""

    id: str
    cluster: str
    team: str
    model: str
    version: int
    alias: str
    person: str
    user: str
    at: float
    document: Mapping[str, Any]
    state: str = "pending"  # pending | running (jobs of gates) | promoting (all gates are passed) | promoted | refused
    why: str = ""
    files: str = ""
    jobs: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[Any, ...] | list[Any] = ()
    manifest: str = ""
    ended_at: float | None = None

    @property
    def label(self) -> str:
        """The version as people write it: NAME@NUMBER."""
        return f"{self.model}@{self.version}"


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """A person's approval of a version. `name`: of the approval, such as licence. `roles`: those of the person at that time."""

    cluster: str
    team: str
    model: str
    version: int
    name: str
    person: str
    roles: tuple[str, ...]
    files: str
    note: str
    at: float


@dataclass(frozen=True, slots=True)
class RequiredGatesRow:
    """The gates that all promotions of a team's models to an alias must pass. `document`: the gates file, {} for none."""

    cluster: str
    team: str
    alias: str
    document: Mapping[str, Any] = field(default_factory=dict)
    person: str = ""
    at: float = 0.0


class PromotionStore(StorePart):
    """Stores promotions, approvals and required gates."""

    async def save(
        self,
        cluster: str,
        team: str,
        model: str,
        version: int,
        alias: str,
        *,
        person: str,
        user: str,
        document: Mapping[str, Any],
        key: str = "",
        sent: Mapping[str, Any] | None = None,
    ) -> PromotionRow:
        """Stores a new promotion. The same request `sent` with the same idempotency `key` is stored once. Raises Conflict while
        another promotion of this model to this alias has not ended: the two could end in the other order."""
        content = json.dumps([key, cluster, user, dict(sent or {})], sort_keys=True)
        number = hashlib.sha256(content.encode()).hexdigest()[:24] if key else random.token_hex(4)
        p, now = t.promotions, self._database.now()
        row = PromotionRow(f"m-{number}", cluster, team, model, version, alias, person, user, now, dict(document))
        async with self._database.write() as db:
            known = (await db.execute(select(p).where(p.c.id == row.id))).first()
            if known is not None:
                return _promotion(known)
            same = (p.c.cluster == cluster, p.c.team == team, p.c.model == model, p.c.alias == alias)
            other = (await db.execute(select(p.c.id).where(*same, p.c.ended_at.is_(None)))).scalar()
            if other is not None:
                raise Conflict(
                    f"promotion {other} of {model} to {alias} has not ended", hint=f"headway model promotions {other}"
                )
            await db.execute(insert(p).values(**asdict(row)))
        return row

    async def get(self, cluster: str, promotion: str) -> PromotionRow:
        """Returns the promotion with this id. Raises NotFound."""
        p = t.promotions
        async with self._database.read() as db:
            found = (await db.execute(select(p).where(p.c.cluster == cluster, p.c.id == promotion))).first()
        if found is None:
            raise NotFound(f"{cluster} has no promotion {promotion!r}", hint="headway model promotions")
        return _promotion(found)

    async def recent(
        self, cluster: str, *, teams: Collection[str], model: str = "", limit: int = 50
    ) -> tuple[PromotionRow, ...]:
        """Returns promotions of these teams of a cluster, or of one model, the latest first, without manifests."""
        p = t.promotions
        wanted = [p.c.cluster == cluster, p.c.team.in_(teams)]
        if model:
            wanted.append(p.c.model == model)
        return await self._rows(*wanted, limit=limit)

    async def unfinished(self) -> tuple[PromotionRow, ...]:
        """Returns the promotions of all clusters that have not ended, the oldest first."""
        p = t.promotions
        async with self._database.read() as db:
            rows = await db.execute(select(p).where(p.c.ended_at.is_(None)).order_by(p.c.at))
            return tuple(map(_promotion, rows))

    async def change(self, promotion: str, *, of_state: str, **values: Any) -> bool:
        """Changes fields of a promotion that is in this state. Returns False if it is in another one by now."""
        p = t.promotions
        wanted = update(p).where(p.c.id == promotion, p.c.state == of_state).values(**values)
        async with self._database.write() as db:
            return (await db.execute(wanted)).rowcount > 0

    async def promoted(self, cluster: str, team: str, models: Collection[str]) -> tuple[PromotionRow, ...]:
        """Returns the promotions of these models that have set their alias, or are about to."""
        p = t.promotions
        return await self._rows(
            p.c.cluster == cluster, p.c.team == team, p.c.model.in_(models), p.c.state.in_(("promoting", "promoted"))
        )

    async def promoted_folders(self, cluster: str, team: str) -> frozenset[str]:
        """Returns where the files of the team's versions are that a promotion has given its alias, or is about to."""
        p = t.promotions
        folder = p.c.document["folder"].as_string()
        found = select(folder).distinct()
        found = found.where(p.c.cluster == cluster, p.c.team == team, p.c.state.in_(("promoting", "promoted")))
        async with self._database.read() as db:
            return frozenset(one for one in (await db.execute(found)).scalars() if one)

    async def aliases_with_gates(self, cluster: str, team: str, aliases: Collection[str]) -> tuple[str, ...]:
        """Returns those of the aliases for which the team requires gates."""
        r = t.required_gates
        query = select(r).where(r.c.cluster == cluster, r.c.team == team, r.c.alias.in_(aliases))
        async with self._database.read() as db:
            rows = (await db.execute(query)).all()
        return tuple(row.alias for row in rows if row.document.get("gates"))

    async def approve(self, approval: ApprovalRow) -> None:
        """Stores an approval; replaces an earlier one of the same person."""
        a, values = t.model_approvals, asdict(approval)
        key = ["cluster", "team", "model", "version", "name", "person"]
        async with self._database.write() as db:
            one = insert_into(db, a).values(**values)
            await db.execute(
                one.on_conflict_do_update(
                    index_elements=key, set_={name: one.excluded[name] for name in values if name not in key}
                )
            )

    async def approvals(
        self, cluster: str, team: str, model: str, version: int | None = None
    ) -> tuple[ApprovalRow, ...]:
        """Returns the approvals of a version, or of all versions of a model, the oldest first."""
        a = t.model_approvals
        wanted = [a.c.cluster == cluster, a.c.team == team, a.c.model == model]
        if version is not None:
            wanted.append(a.c.version == version)
        async with self._database.read() as db:
            rows = await db.execute(select(a).where(*wanted).order_by(a.c.at, a.c.name, a.c.person))
            return tuple(ApprovalRow(**{**row._mapping, "roles": tuple(row.roles)}) for row in rows)

    async def required_gates(self, cluster: str, team: str, alias: str) -> RequiredGatesRow:
        """Returns the gates that an alias of a team requires; an empty document for none."""
        r = t.required_gates
        query = select(r).where(r.c.cluster == cluster, r.c.team == team, r.c.alias == alias)
        async with self._database.read() as db:
            row = (await db.execute(query)).first()
        return RequiredGatesRow(**row._mapping) if row else RequiredGatesRow(cluster, team, alias)

    async def require_gates(self, required: RequiredGatesRow) -> None:
        """Stores the gates that an alias requires, in place of earlier ones."""
        r, values = t.required_gates, asdict(required)
        async with self._database.write() as db:
            one = insert_into(db, r).values(**values)
            change = {name: one.excluded[name] for name in ("document", "person", "at")}
            await db.execute(one.on_conflict_do_update(index_elements=["cluster", "team", "alias"], set_=change))

    async def _rows(self, *conditions: ColumnElement[bool], limit: int | None = None) -> tuple[PromotionRow, ...]:
        """Returns promotions without their manifests, which can be large, the latest first."""
        p = t.promotions
        columns = [column for column in p.c if column is not p.c.manifest]
        query = select(*columns).where(*conditions).order_by(p.c.at.desc(), p.c.id.desc()).limit(limit)
        async with self._database.read() as db:
            return tuple(map(_promotion, await db.execute(query)))


def _promotion(row: Any) -> PromotionRow:
    return PromotionRow(**row._mapping)
