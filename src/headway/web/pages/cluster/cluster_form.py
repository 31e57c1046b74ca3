"""The page for a new cluster, or for changing an existing one: form, YAML, faults, changes, apply.

GET  /new              the form; ?cluster=NAME starts with that cluster's document
POST /new/check        checks the input; returns the parts of the page that depend on it (htmx)
POST /new              the same for a browser without scripts; with do=plan the changes too
POST /new/apply        queues the apply that was shown, and redirects to its progress

The YAML is authoritative. The part (form or YAML) that was edited since the page was made overwrites the other.

The YAML parser is imported where it is used, so that a server on which this page is not used does not load it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from headway.api.auth.dependencies import Admin, Planner, State
from headway.api.http.failure_audit import audit_failure
from headway.clusterfile import web_form as forms
from headway.domain.cluster import Plan
from headway.errors import Fault, HeadwayError, InvalidSpec
from headway.schemas.clusters import ApplyIn, Document
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.cluster import clusters, planning
from headway.services.cluster.document_secrets import HIDDEN
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.changeset import grouped
from headway.web.views.deadline_field import deadline_s, needs_deadline

router = page_router()
SPARE_ROWS = 1  # empty rows below the filled ones


@dataclass(frozen=True, slots=True)
class ShownFault:
    """A fault with its line in the text (0 = none) and the form field at which it is shown ("" = none)."""

    message: str
    hint: str
    path: str
    level: str
    line: int
    at: str


@dataclass(frozen=True)
class Flow:
    """Everything that the page shows for one text."""

    text: str
    form: forms.Form
    faults: tuple[ShownFault, ...] = ()
    plans: Mapping[str, Plan] = field(default_factory=dict)
    price: str = ""  # USD an hour; "" while the file has faults
    sentence: str = ""
    readable: bool = True  # whether the text could be parsed, so that the form matches it
    editing: str = ""  # name of the existing cluster that is edited

    @property
    def was(self) -> str:
        """Returns the digest of the text."""
        return file_digest(self.text)

    @property
    def lines(self) -> int:
        """Returns the number of lines of the text."""
        return self.text.count("\n") + 1

    @property
    def sound(self) -> bool:
        """Returns whether the text has no errors."""
        return all(fault.level != "error" for fault in self.faults)

    @property
    def marks(self) -> dict[int, str]:
        """Returns the worst fault level of each line that has one."""
        found: dict[int, str] = {}
        for fault in self.faults:
            if fault.line and found.get(fault.line) != "error":
                found[fault.line] = fault.level
        return found

    def at(self, name: str) -> list[ShownFault]:
        """Returns the faults shown at a form field."""
        return [fault for fault in self.faults if fault.at == name]

    @property
    def teams(self) -> tuple[forms.TeamRow, ...]:
        """Returns the form's team rows, with empty ones at the end."""
        return (*self.form.teams, *(forms.TeamRow() for _ in range(SPARE_ROWS)))

    @property
    def datasets(self) -> tuple[forms.DatasetRow, ...]:
        """Returns the form's dataset rows, with empty ones at the end."""
        return (*self.form.datasets, *(forms.DatasetRow() for _ in range(SPARE_ROWS)))


def file_digest(text: str) -> str:
    """Returns a short hash of the text, by which an edit is recognised."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@router.get("/new")
async def new_cluster_page(state: State, who: Planner, cluster: str = "") -> Response:
    """Returns the page with a new cluster or an existing cluster's document."""
    from headway.validation.yaml_parser import dump_yaml

    if cluster:
        stored = await clusters.get_document(state, cluster)
        text = stored.text if _self_contained(stored) else dump_yaml(stored.spec)
    else:
        text = dump_yaml(forms.apply_form(forms.new_form(await _free_name(state)), {}))
    return _page(who, await check_text(state, who, text))


@router.post("/new/check")
async def check_cluster_file(request: Request, state: State, who: Planner) -> Response:
    """Checks the input and returns the parts of the page that depend on it."""
    sent = await _sent(request)
    flow, leads = await _follow(state, who, sent)
    return render("cluster_form_updates.html", viewer=who, flow=flow, leads=leads)


@router.post("/new")
async def plan_new_cluster(request: Request, state: State, who: Planner) -> Response:
    """Checks the input and returns the whole page, with the planned changes if asked for."""
    sent = await _sent(request)
    flow, _ = await _follow(state, who, sent)
    if _one(sent, "do") != "plan" or not flow.sound:
        return _page(who, flow)
    return await _with_changes(state, who, flow)


@router.post("/new/apply")
async def apply_cluster(request: Request, state: State, who: Admin) -> Response:
    """Queues the apply and redirects to its progress."""
    sent = await _sent(request)
    flow = await check_text(state, who, _one(sent, "text"))
    if not flow.sound:
        return _page(who, flow)
    document = await _document(state, flow.text)
    try:
        apply_request = ApplyIn(
            document=document,
            digest=_one(sent, "digest"),
            confirmed=bool(_one(sent, "confirmed")),
            deadline_s=deadline_s(_one(sent, "deadline")),
        )
        operation = await clusters.apply_document(state, who, str(document.spec.get("name")), apply_request)
    except HeadwayError as error:
        await audit_failure(request, error)
        return await _with_changes(state, who, flow, error, deadline=_one(sent, "deadline"))
    return RedirectResponse(f"/operations/{operation.id}", status_code=303)


async def check_text(state: AppState, who: Principal, text: str) -> Flow:
    """Returns the text parsed and checked like an apply would; contacts no machine."""
    from headway.catalog.plans import load_catalogue
    from headway.clusterfile.field_lines import field_lines
    from headway.validation.yaml_parser import parse_yaml

    try:
        spec = await asyncio.to_thread(parse_yaml, text)
    except InvalidSpec as error:
        faults = tuple(_shown(fault, {}) for fault in error.faults)
        return Flow(text, forms.Form(plan="", nodes=""), faults, load_catalogue(), readable=False)
    form, lines = forms.form_from_spec(spec), await asyncio.to_thread(field_lines, text)
    document = await _document(state, text)
    resolved, found = await planning.check_document(state, who, document)
    row = await _row(state, spec)
    return Flow(
        text,
        form,
        tuple(_shown(fault, lines) for fault in found),
        _plans(document),
        f"{resolved.min_usd_per_hour:.2f}" if resolved else "",
        _sentence(form),
        editing=row.name if row else "",
    )


async def _follow(state: AppState, who: Principal, sent: Mapping[str, list[str]]) -> tuple[Flow, str]:
    """Returns the checked input and which part was edited: "text", "form", or "" if neither."""
    from headway.validation.yaml_parser import dump_yaml, parse_yaml

    text = _one(sent, "text").replace("\r\n", "\n")
    if file_digest(text) != _one(sent, "was"):
        return await check_text(state, who, text), "text"
    typed = forms.form_from_fields(sent)
    flow = await check_text(state, who, text)
    if not flow.readable or typed == _normal(flow.form):
        return flow, ""
    led = await check_text(state, who, dump_yaml(forms.apply_form(typed, parse_yaml(text))))
    return led, "form"


def _normal(form: forms.Form) -> forms.Form:
    """Returns the form as a browser would send it back: without values that a form can't represent."""
    sent: dict[str, list[str]] = {}
    for name in forms.PLAIN:
        sent[name] = [getattr(form, name)]
    for number, team in enumerate(form.teams):
        sent |= {f"team-{number}-{key}": [getattr(team, key)] for key in ("name", "users", "share")}
    for number, dataset in enumerate(form.datasets):
        sent |= {f"dataset-{number}-name": [dataset.name], f"dataset-{number}-path": [dataset.path]}
        sent[f"dataset-{number}-writable"] = ["on" if dataset.writable else ""]
    return forms.form_from_fields(sent)


async def _with_changes(
    state: AppState, who: Principal, flow: Flow, error: HeadwayError | None = None, deadline: str = ""
) -> Response:
    """Returns the page with the changes that apply would make, planned now. `error` is the reason why the last try
    was refused, `deadline` the deadline typed then."""
    try:
        changes = await planning.plan_document(state, who, await _document(state, flow.text))
    except HeadwayError as failed:
        return _page(who, flow, error=failed, status=failed.http_status)
    return _page(
        who,
        flow,
        changes=changes,
        groups=grouped(changes),
        goes=needs_deadline(changes.changes),
        deadline=deadline,
        error=error,
        status=error.http_status if error else 200,
    )


def _page(who: Principal, flow: Flow, **more: Any) -> Response:
    values = {"changes": None, "groups": [], "goes": False, "deadline": "", "error": None, "status": 200, **more}
    status = values.pop("status")
    return render("cluster_form.html", status=status, viewer=who, flow=flow, leads="", **values)


async def _document(state: AppState, text: str) -> Document:
    """Returns the document for this text, with the cluster's own catalogue and the alert addresses that were hidden."""
    from headway.validation.yaml_parser import parse_yaml

    spec = parse_yaml(text)
    row = await _row(state, spec)
    if row is None:
        return Document(text=text, spec=spec)
    known = Document.model_validate(row.document)
    alerts, old = spec.get("alerts"), known.spec.get("alerts")
    if isinstance(alerts, dict) and isinstance(old, dict):
        spec["alerts"] = {key: old.get(key, value) if value == HIDDEN else value for key, value in alerts.items()}
    return Document(text=text, spec=spec, catalogue=known.catalogue)


async def _row(state: AppState, spec: Mapping[str, Any]) -> Any:
    name = spec.get("name")
    return await state.store.clusters.get(name) if isinstance(name, str) else None


def _plans(document: Document) -> Mapping[str, Plan]:
    from headway.catalog.plans import load_catalogue

    try:
        return load_catalogue(document.catalogue)
    except InvalidSpec:
        return load_catalogue()


def _self_contained(stored: Document) -> bool:
    """Returns whether the text equals what was applied, without files on the machine of the person who applied it."""
    from headway.validation.yaml_parser import parse_yaml

    try:
        return parse_yaml(stored.text) == stored.spec
    except InvalidSpec:
        return False


async def _free_name(state: AppState) -> str:
    taken = {row.name for row in await state.store.clusters.all()}
    return next(name for name in ("lab", *(f"lab{n}" for n in range(2, 1000))) if name not in taken)


def _sentence(form: forms.Form) -> str:
    nodes, spares = form.nodes, form.spares
    if not nodes.isdigit() or (spares and not spares.isdigit()):
        return ""
    more = f" and {spares} spare{'s' * (spares != '1')}" if spares and spares != "0" else ""
    return f"{nodes} node{'s' * (nodes != '1')}{more}"


def _shown(fault: Fault, lines: Mapping[str, int]) -> ShownFault:
    from headway.clusterfile.field_lines import line_of

    return ShownFault(
        fault.message, fault.hint, fault.path, fault.level, line_of(fault.path, lines), _place(fault.path)
    )


def _place(path: str) -> str:
    """Returns the form field that a fault belongs to."""
    first = path.partition(".")[0].partition("[")[0]
    places = {"users": "user_keys", "fabric": "leaf_size", "storage": "storage", "teams": "teams"}
    shown = ("name", "provider", "hosts", "image", "plan", "nodes", "spares", "ssh_keys")
    return places.get(first, first if first in shown else "")


async def _sent(request: Request) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    async with request.form(max_files=0, max_fields=1000) as form:
        for name, value in form.multi_items():
            if isinstance(value, str):
                found.setdefault(name, []).append(value)
    return found


def _one(sent: Mapping[str, list[str]], name: str) -> str:
    return (sent.get(name) or [""])[0]
