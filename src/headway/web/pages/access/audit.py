"""The audit trail. All filters are in the address, so that a view can be bookmarked and shared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from starlette.responses import Response

from headway.api.auth.dependencies import Admin, State
from headway.services.access.audit import AuditResult, load_audit_page
from headway.store import AuditAsk
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
Text = Annotated[str, Query(max_length=200)]
_DAY_S = 86_400.0
_VERBS = frozenset({"add", "change", "close", "create", "delete", "disable", "drain", "enable", "end", "open", "provision",
                    "rebuild", "refresh", "remove", "return", "rotate", "set", "test"})  # fmt: skip
_WORDS = {
    "signin": "sign in",
    "signout": "sign out",
    "signin.link": "create a sign-in link",
    "bring_back": "return an incident's node to service",
    "incident.return": "return an incident's node to service",
    "down": "take the cluster down",
    "exec": "run a command on machines",
    "submit": "submit a job",
    "cancel": "cancel a job",
    "apply": "apply a cluster file",
    "token.delete": "revoke a token",
}


@router.get("/audit")
async def audit_page(
    state: State,
    who: Admin,
    person: Text = "",
    action: Text = "",
    target: Text = "",
    result: AuditResult = "",
    since: Annotated[str, Query(max_length=10)] = "",
    until: Annotated[str, Query(max_length=10)] = "",
    cursor: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Returns one page of audit lines. `since` and `until` are days in UTC, both included."""
    query = {"person": person.strip(), "action": action.strip(), "target": target.strip(), "result": result}
    after, before = _day(since), _day(until)
    before = before + _DAY_S if before else 0.0
    filters = AuditAsk(query["person"], query["action"], query["target"], result, after, before)
    found = await load_audit_page(state, filters, limit=100, cursor=cursor)
    narrowed = {key: value for key, value in {**query, "since": since, "until": until}.items() if value}
    export = urlencode({k: v for k, v in {**query, "since": after, "until": before}.items() if v})
    return render(
        "audit.html",
        viewer=who,
        here="audit",
        found=found,
        ask={**query, "since": since, "until": until},
        narrowed=bool(narrowed),
        first=not cursor,
        further=f"/audit?{urlencode({**narrowed, 'cursor': found.next})}" if found.next else "",
        newest=f"/audit?{urlencode(narrowed)}" if cursor else "",
        export=export,
        results=("ok", "refused", "failed"),
        action_words=action_words,
    )


def action_words(action: str) -> str:
    """Returns an action of the audit trail in words. Filters and exports keep its name: `node.drain`, `people_page`."""
    noun, dot, verb = action.partition(".")
    text = f"{verb} {noun}" if dot and verb in _VERBS else action.replace(".", " ")
    if text.endswith("_page"):
        text = f"open the page {text.removesuffix('_page')}"
    return _WORDS.get(action) or text.replace("_", " ")


def _day(text: str) -> float:
    """Returns the day's start in unix seconds; 0 if the text is not a day."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() if text else 0.0
    except ValueError:
        return 0.0
