"""What nodes were, and from when to when: up, drained, down, spare, or off."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.pagination import Cursor, read, written
from headway.api.routers.billing.usage import MOST_RUNS, Form, Name, When, fresh, sheet, stretch, teams_seen
from headway.billing import node_timeline
from headway.billing.node_timeline import Standing, Stood
from headway.billing.periods import Period
from headway.domain.slurm.hostlist import natural_key
from headway.errors import Refused
from headway.schemas.billing import NodeStateOut, NodeStatesOut
from headway.services.billing.invoicing import Place, place_of
from headway.services.context import AppState

States = Annotated[str, Query(alias="state", max_length=40, description="only what was so, as down,drained")]
router = APIRouter(prefix="/clusters/{name}", tags=["costs"])


@router.get("/usage/nodes", response_model=NodeStatesOut)
async def nodes(
    name: str,
    state: State,
    who: Anyone,
    start: When = "",
    end: When = "",
    node: Name = "",
    group: Name = "",
    stood: States = "",
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=MOST_RUNS)] = MOST_RUNS,
    format: Form = "json",  # noqa: A002
) -> NodeStatesOut | Response:
    """Every second that nodes had a machine, in exactly one state; and those between two machines, as off. A sheet holds all of
    it, JSON a page."""
    place = await place_of(state, name)
    teams_seen(place, who)
    period, wanted = stretch(place, start, end), _states(stood)
    await fresh(state, place)
    found = [
        one
        for one in await stood_in(state, place, period)
        if (not node or one.node == node) and (not group or one.group == group) and one.state in wanted
    ]
    if format == "csv":
        return sheet(_out(place, period, found, ""), f"{name}-nodes")
    if cursor:
        node, began = read(cursor, str, int)
        found = found[
            bisect_right(found, (natural_key(node), began), key=lambda one: (natural_key(one.node), one.start)) :
        ]
    more = written((found[limit - 1].node, found[limit - 1].start)) if len(found) > limit else ""
    return _out(place, period, found[:limit], more)


def _states(text: str) -> frozenset[Standing]:
    """Raises Refused."""
    words = [word for word in text.split(",") if word]
    if unknown := [word for word in words if word not in list(Standing)]:
        raise Refused(f"no node is ever {unknown[0]}", hint=", ".join(Standing))
    return frozenset(Standing(word) for word in words) or frozenset(Standing)


async def stood_in(state: AppState, place: Place, period: Period) -> list[Stood]:
    lives = await state.store.lives(place.name, period.start, period.end)
    reserved = {row.group for row in await state.store.prices(place.name) if row.reserved}
    if reserved:  # paid for while they are off too: since when they are, a life before the period says
        before = await state.store.lives(place.name, 0, period.start)
        lives += [one for one in before if one.group in reserved and one not in lives]
    said = await state.store.node_spans(place.name, period.start, period.end)
    return node_timeline.intervals(lives, said, period.start, period.end, place.now)


def _out(place: Place, period: Period, found: list[Stood], more: str) -> NodeStatesOut:
    return NodeStatesOut(
        cluster=place.name,
        start=period.start,
        end=period.end,
        as_of=place.now,
        states=[
            NodeStateOut(
                node=one.node,
                group=one.group,
                state=one.state.value,
                start=one.start,
                end=one.end or None,
                seconds=(one.end or place.now) - one.start,
                reason=one.reason,
            )
            for one in found
        ],
        next=more,
    )
