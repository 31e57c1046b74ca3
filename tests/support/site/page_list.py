"""Every page, by its route: the list that the tests visit and `make screenshots` takes pictures of. A new page adds
its line here.

The addresses are those of the furnished site (demo_state.furnish): cluster `demo` has a broken node and a training,
`prod` cannot be read any more, `half` is in creation. Role: the person who views the page; "" = signed out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    name: str  # name of its pictures
    path: str
    role: str = "admin"
    status: int = 200


PLACES: dict[str, tuple[Place, ...]] = {
    "/": (Place("home", "/"), Place("sign-in", "/", role="", status=401)),
    "/search": (
        Place("search", "/search?q=train&cluster=demo"),
        Place("search-none", "/search?q=zzz", role="viewer"),
    ),
    "/incidents": (Place("incidents", "/incidents", role="viewer"),),
    "/clusters/{name}/events": (
        Place("events", "/clusters/demo/events", role="viewer"),
        Place("events-none", "/clusters/prod/events"),
    ),
    "/clusters/{name}/incidents": (
        Place("cluster-incidents", "/clusters/demo/incidents"),
        Place("no-incidents", "/clusters/prod/incidents?show=open", role="viewer"),
    ),
    "/clusters/{name}/incidents/{number}": (
        Place("incident-open", "/clusters/demo/incidents/2", role="operator"),
        Place("incident-over", "/clusters/demo/incidents/1", role="viewer"),
    ),
    "/clusters/{name}/trainings": (
        Place("trainings", "/clusters/demo/trainings"),
        Place("trainings-none", "/clusters/prod/trainings", role="viewer"),
    ),
    "/clusters/{name}/trainings/compare": (
        Place("training-comparison", "/clusters/demo/trainings/compare?job=104&job=98"),
    ),
    "/clusters/{name}/nodes": (
        Place("nodes", "/clusters/prod/nodes", role="viewer"),
        Place("nodes-none", "/clusters/demo/nodes?q=nothing"),
        Place("nodes-half", "/clusters/half/nodes"),
    ),
    "/clusters/{name}/fabric-test": (
        Place("fabric-test", "/clusters/demo/fabric-test"),
        Place("fabric-test-none", "/clusters/prod/fabric-test", role="viewer"),
    ),
    "/clusters/{name}/schedule": (
        Place("schedule", "/clusters/demo/schedule"),
        Place("schedule-viewer", "/clusters/prod/schedule", role="viewer"),
        Place("schedule-empty", "/clusters/half/schedule"),
    ),
    "/clusters/{name}/scale": (
        Place("scale", "/clusters/grow/scale"),
        Place("scale-viewer", "/clusters/demo/scale", role="viewer"),
    ),
    "/clusters/{name}/nodes/{node}": (
        Place("node", "/clusters/demo/nodes/demo-1-1", role="operator"),
        Place("node-broken", "/clusters/demo/nodes/demo-1-3"),
        Place("node-stale", "/clusters/prod/nodes/prod-1-4", role="viewer"),
    ),
    "/clusters/{name}": (
        Place("cluster", "/clusters/demo"),
        Place("cluster-stale", "/clusters/prod", role="viewer"),
        Place("cluster-half", "/clusters/half"),
        Place("cluster-groups", "/clusters/grow"),
        Place("no-cluster", "/clusters/none", status=404),
    ),
    "/clusters/{name}/storage": (
        Place("storage", "/clusters/demo/storage"),
        Place("storage-lost", "/clusters/grow/storage", role="operator"),
        Place("storage-away", "/clusters/prod/storage", role="viewer"),
    ),
    "/clusters/{name}/notebooks": (
        Place("notebooks", "/clusters/demo/notebooks", role="member"),
        Place("no-notebooks", "/clusters/demo/notebooks", role="operator"),
    ),
    "/clusters/{name}/terminal": (
        Place("terminal", "/clusters/demo/terminal", role="member"),
        Place("terminal-job", "/clusters/demo/terminal?job=104", role="member"),
    ),
    "/clusters/{name}/sweeps": (
        Place("sweeps", "/clusters/demo/sweeps", role="member"),
        Place("no-sweeps", "/clusters/prod/sweeps"),
    ),
    "/clusters/{name}/sweeps/{sweep}": (Place("sweep", "/clusters/demo/sweeps/lr-search", role="member"),),
    "/clusters/{name}/pipelines": (
        Place("pipelines", "/clusters/demo/pipelines", role="member"),
        Place("no-pipelines", "/clusters/prod/pipelines"),
    ),
    "/clusters/{name}/pipelines/{pipeline}": (Place("pipeline", "/clusters/demo/pipelines/tune", role="member"),),
    "/clusters/{name}/lineage": (Place("lineage", "/clusters/demo/lineage?of=job:331", role="member"),),
    "/clusters/{name}/batches": (
        Place("batches", "/clusters/demo/batches", role="member"),
        Place("no-batches", "/clusters/prod/batches"),
    ),
    "/clusters/{name}/batches/{batch}": (Place("batch", "/clusters/demo/batches/answers", role="member"),),
    "/clusters/{name}/models": (
        Place("models", "/clusters/demo/models", role="member"),
        Place("no-models", "/clusters/prod/models"),
    ),
    "/clusters/{name}/models/{team}/{model}": (
        Place("model", "/clusters/demo/models/vision/street-signs", role="member"),
    ),
    "/clusters/{name}/services": (
        Place("services", "/clusters/demo/services", role="member"),
        Place("no-services", "/clusters/prod/services"),
    ),
    "/clusters/{name}/services/{service}": (Place("service", "/clusters/demo/services/chat", role="member"),),
    "/clusters/{name}/queue": (
        Place("queue", "/clusters/demo/queue"),
        Place("queue-array", "/clusters/grow/queue?show=running,waiting,ended&open=300"),
        Place("queue-none", "/clusters/demo/queue?q=nothing", role="viewer"),
    ),
    "/clusters/{name}/jobs/{job_id}": (
        Place("job", "/clusters/demo/jobs/104", role="member"),
        Place("job-waits", "/clusters/demo/jobs/107", role="viewer"),
        Place("array", "/clusters/grow/jobs/300"),
        Place("array-task", "/clusters/grow/jobs/300_4"),
        Place("no-job", "/clusters/demo/jobs/9", status=404),
    ),
    "/clusters/{name}/submit": (
        Place("submit", "/clusters/demo/submit", role="member"),
        Place("submit-command", "/clusters/demo/submit?how=command", role="member"),
        Place("submit-like", "/clusters/demo/submit?from=104", role="member"),
    ),
    "/new": (Place("new", "/new"), Place("change", "/new?cluster=demo", role="member")),
    "/operations/{operation_id}": (
        Place("operation-failed", "/operations/op-failed"),
        Place("operation", "/operations/op-running", role="viewer"),
        Place("no-operation", "/operations/op-none", status=404),
    ),
    "/signin/again": (Place("sign-in-again", "/signin/again?next=/people", role=""),),
    "/signin/oidc": (Place("sign-in-no-provider", "/signin/oidc", role="", status=404),),
    "/signin/oidc/back": (Place("sign-in-back", "/signin/oidc/back", role="", status=404),),
    "/signin": (
        Place("sign-in-page", "/signin", role=""),
        Place("sign-in-spent", "/signin?code=x", role="", status=401),
    ),
    "/tokens": (Place("tokens", "/tokens"), Place("tokens-viewer", "/tokens", role="viewer")),
    "/people": (Place("people", "/people"), Place("people-refused", "/people", role="member", status=403)),
    "/audit": (Place("audit", "/audit"), Place("audit-none", "/audit?person=nobody-at-all")),
    "/settings": (Place("settings", "/settings"),),
    "/offers": (
        Place("offers", "/offers?gpu=h100&count=16&gpus_per_node=8"),
        Place("offers-all", "/offers", role="viewer"),
        Place("offers-none", "/offers?gpu=none&count=x", role="viewer"),
    ),
    "/size": (
        Place("size", "/size?model=llama-3-70b&gpus=256&tokens=2T"),
        Place("size-none", "/size", role="viewer"),
        Place("size-refused", "/size?model=70b&gpus=8", role="viewer", status=400),
    ),
    "/clusters/{name}/teams": (
        Place("teams", "/clusters/demo/teams"),
        Place("teams-viewer", "/clusters/prod/teams", role="viewer"),
    ),
    "/costs": (
        Place("all-costs", "/costs"),
        Place("all-costs-member", "/costs", role="member"),
        Place("all-costs-none", "/costs?period=2020-01", role="viewer"),
    ),
    "/clusters/{name}/costs": (
        Place("costs", "/clusters/demo/costs"),
        Place("costs-member", "/clusters/demo/costs", role="member"),
        Place("costs-usage", "/clusters/demo/costs?section=usage"),
        Place("costs-budgets", "/clusters/demo/costs?section=budgets"),
        Place("costs-invoice", "/clusters/demo/costs?section=invoice"),
        Place("costs-chargeback", "/clusters/demo/costs?section=chargeback"),
        Place("costs-goodput", "/clusters/demo/costs?section=goodput"),
        Place("costs-capacity", "/clusters/demo/costs?section=capacity"),
        Place("costs-forecast", "/clusters/demo/costs?section=forecast"),
        Place("costs-buy", "/clusters/demo/costs?section=buy&spot_share=0.3"),
        Place("costs-buy-none", "/clusters/demo/costs?section=buy&years=0", role="viewer"),
        Place("costs-energy", "/clusters/demo/costs?section=energy"),
        Place("costs-runs", "/clusters/demo/costs?section=runs"),
        Place("costs-nodes", "/clusters/demo/costs?section=nodes"),
        Place("costs-empty", "/clusters/demo/costs?period=2020-01"),
        Place("costs-none", "/clusters/prod/costs?section=budgets", role="viewer"),
    ),
}

# Routes that return no page: streams, parts of pages, files.
NO_PAGE = {
    "/search/clusters",
    "/clusters/{name}/costs/note",
    "/clusters/{name}/fabric",
    "/clusters",
    "/clusters/{name}/live",
    "/clusters/{name}/queue/live",
    "/clusters/{name}/schedule/live",
    "/clusters/{name}/jobs/{job_id}/live",
    "/clusters/{name}/jobs/{job_id}/efficiency",
    "/clusters/{name}/jobs/{job_id}/alternatives",
    "/operations/{operation_id}/live",
    "/clusters/{name}/notebooks/{notebook_id}/open",
}
