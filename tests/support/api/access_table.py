"""The roles that each route must admit and refuse: one row per route, written by hand and not derived from the code.

A row names the roles that are admitted. Where it matters whose object is requested, the row names them for a
person's own object, for one of a team member (which the lead leads) and for one of another team.
test_route_access.py prepares everything else that a request needs: NAMES there fills the {places} of an address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headway.domain.access.role import Role
from headway.services.access.role_rights import TOKEN_SCOPES

ROLES = tuple(role.value for role in Role)
THINGS = ("own", "team", "other")

PUBLIC = frozenset({*ROLES, "nobody"})
ALL = frozenset(ROLES)
WORK = ALL - {"viewer"}
NODES = frozenset({"operator", "admin"})
ADMIN = frozenset({"admin"})
NO_ROLE: frozenset[str] = frozenset()
LEAD = frozenset({"lead", "admin"})


@dataclass(frozen=True)
class Row:
    """The roles that one route admits, and what a request to it needs."""

    own: frozenset[str]
    team: frozenset[str] | None = None  # None: the same as `own`, because the owner does not matter
    other: frozenset[str] | None = None
    body: Mapping[str, Any] | None = field(default=None)  # what a request needs to reach the check of rights
    leaves: bool = False  # a stream, which refuses with an event that redirects the browser
    hidden: bool = False  # an object of another person gives "not found", not "forbidden"

    def roles(self, thing: str) -> frozenset[str]:
        found: frozenset[str] | None = getattr(self, thing)
        return self.own if found is None else found


TOUCH = Row(WORK, LEAD, ADMIN)  # cancel, hold, read the log of
OWNER = Row(WORK, ADMIN, ADMIN, body={})  # repeats something as the job's user
NOTEBOOK = Row(WORK, ADMIN, ADMIN, hidden=True)  # "not found" for other people
OPENED = Row(WORK, NO_ROLE, NO_ROLE, hidden=True)  # hidden from admins too
SPEC = {"text": "name: lab\n", "spec": {"name": "lab", "plan": "h100-8", "nodes": 4}}

SWEEP_FILE = {"name": "s", "run": "true", "metric": {"name": "loss"}, "parameters": {"a": [1]}, "method": "manual"}

BATCH = {"input": "/scratch/rows.jsonl", "output": "answers", "program": "predict.py"}
PROMOTION = {"model": "iris", "version": 1, "team": "red", "to": "production"}
SERVICE_FILE = {"name": "s", "run": "true"}

SCIM_ROUTES = " /scim/v2/"  # only a token of scope scim is admitted, which none of the roles has
SCIM_USER = {"userName": "zoe", "externalId": "z1"}
SCIM_PATCH = {"Operations": [{"op": "replace", "path": "displayName", "value": "x"}]}

# API routes that a token's scope admits besides `all`, where that does not follow from the row: see scopes_of.
PLAN_ROUTES = frozenset(
    {
        "POST api/plan",
        "POST api/clusters/{name}/roll/plan",
        "POST api/clusters/{name}/scale/plan",
    }
)
OWN_ROUTES = frozenset(
    {
        "GET api/tokens",
        "POST api/tokens",
        "DELETE api/tokens/{token_id}",
        "POST api/signin-links",
        "GET api/sessions",
        "DELETE api/sessions/{session_id}",
        "POST api/clusters/{name}/models/{team}/{model}/approvals",
        "PUT api/clusters/{name}/required-gates/{team}/{alias}",
        # of another person's environment: needs both submit and admin
        "POST api/clusters/{name}/environments/{environment}/{version}/remove",
    }
)


def scopes_of(key: str) -> frozenset[str]:
    """Returns the scopes with which an admin's token is admitted to an API route."""
    row = TABLE[key]
    if SCIM_ROUTES in key:
        return frozenset({"scim"})
    if key in OWN_ROUTES:
        return frozenset({"all"})
    if row.own == PUBLIC:
        return frozenset(TOKEN_SCOPES)
    if row.own == ALL:
        return frozenset({"all", "read", "plan", "submit", "operate", "admin"})
    if key in PLAN_ROUTES:
        return frozenset({"all", "plan", "admin"})
    return frozenset({"all", {NODES: "operate", ADMIN: "admin"}.get(row.own, "submit")})


TABLE: dict[str, Row] = {
    # the API, below its prefix
    "GET api/openapi.json": Row(PUBLIC),
    "GET api/docs": Row(PUBLIC),
    "GET api/docs.css": Row(PUBLIC),
    "GET api/me": Row(ALL),
    "GET api/server": Row(ALL),
    "POST api/server/key/rotate": Row(ADMIN),
    "GET api/offers": Row(ALL),
    "POST api/offers/refresh": Row(ADMIN),
    "POST api/size": Row(ALL, body={"model": "1b", "gpus": 8}),
    "POST api/plan": Row(WORK, body=SPEC),
    "GET api/clusters": Row(ALL),
    "GET api/clusters/{name}": Row(ALL),
    "GET api/clusters/{name}/status": Row(ALL),
    "GET api/clusters/{name}/document": Row(WORK),
    "GET api/clusters/{name}/access": Row(WORK),
    "GET api/clusters/{name}/slurm-export": Row(ADMIN),
    "POST api/clusters/{name}/apply": Row(ADMIN, body={"document": SPEC}),
    "GET api/clusters/{name}/fabric-test": Row(ALL),
    "POST api/clusters/{name}/fabric-test": Row(NODES, body={}),
    "GET api/clusters/{name}/whatif": Row(NODES),
    "POST api/clusters/{name}/whatif": Row(NODES, body={}),
    "GET api/clusters/{name}/whatif/{operation}": Row(NODES),
    "POST api/clusters/{name}/roll": Row(ADMIN, body={}),
    "POST api/clusters/{name}/roll/plan": Row(WORK, body={}),
    "POST api/clusters/{name}/scale": Row(ADMIN, body={"groups": {"": 2}}),
    "POST api/clusters/{name}/scale/plan": Row(WORK, body={"groups": {"": 2}}),
    "POST api/clusters/{name}/down": Row(ADMIN, body={}),
    "POST api/clusters/{name}/backup": Row(ADMIN, body={"to": "/var/tmp/x/backups", "passphrase": "long enough"}),
    "POST api/clusters/{name}/restore": Row(ADMIN, body={"path": "/var/tmp/x/none", "passphrase": "long enough"}),
    "POST api/clusters/{name}/keys/rotate": Row(ADMIN, body={"what": "munge"}),
    "GET api/clusters/{name}/storage": Row(ALL),
    "POST api/clusters/{name}/storage/bench": Row(NODES, body={}),
    "GET api/clusters/{name}/datasets": Row(ALL),
    "POST api/clusters/{name}/datasets": Row(ADMIN, body={"name": "tiny", "source": "/var/tmp/x/tiny"}),
    "POST api/clusters/{name}/datasets/{dataset}/{version}/verify": Row(NODES),
    "POST api/clusters/{name}/datasets/{dataset}/{version}/remove": Row(ADMIN, body={}),
    "GET api/clusters/{name}/environments": Row(ALL),  # the environment of the tests belongs to a person without role
    "POST api/clusters/{name}/environments": Row(WORK, body={"name": "tiny", "text": "numpy"}),
    "GET api/clusters/{name}/environments/{environment}/{version}": Row(ALL),
    "POST api/clusters/{name}/environments/{environment}/{version}/remove": Row(ADMIN, body={}),
    "GET api/backups": Row(ADMIN),
    "POST api/backups/verify": Row(ADMIN, body={"path": "/var/tmp/x/none", "passphrase": "long enough"}),
    "GET api/operations": Row(ALL),
    "GET api/operations/{operation_id}": Row(ALL),
    "GET api/operations/{operation_id}/events": Row(ALL),
    "GET api/clusters/{name}/events": Row(ALL),
    "GET api/events": Row(ALL),
    "GET api/clusters/{name}/activity": Row(ALL),
    "GET api/rented": Row(NODES),
    "GET api/clusters/{name}/incidents": Row(ALL),
    "GET api/clusters/{name}/incidents/{number}": Row(ALL),
    "POST api/clusters/{name}/incidents/{number}/return": Row(NODES, body={}),
    "GET api/clusters/{name}/nodes/{node}/history": Row(ALL),
    "GET api/clusters/{name}/metrics": Row(ALL),
    "GET api/clusters/{name}/schedule": Row(ALL),
    "GET api/clusters/{name}/nodes/{node}": Row(ALL),
    "POST api/clusters/{name}/nodes/{node}/drain": Row(NODES, body={"reason": "disk swap"}),
    "POST api/clusters/{name}/nodes/{node}/return": Row(NODES),
    "POST api/clusters/{name}/nodes/{node}/reboot": Row(NODES, body={}),
    "POST api/clusters/{name}/nodes/{node}/test": Row(NODES, body={}),
    "POST api/clusters/{name}/faults": Row(NODES, body={"kind": "xid", "node": "lab-1-1", "code": 79}),
    "GET api/clusters/{name}/jobs": Row(ALL),
    "POST api/clusters/{name}/jobs": Row(WORK, body={"script": "#!/bin/sh\n"}),
    "POST api/clusters/{name}/jobs/check": Row(WORK, body={"submit": {"script": "#!/bin/sh\n"}}),
    "GET api/clusters/{name}/jobs/{job_id}": Row(ALL),
    "DELETE api/clusters/{name}/jobs/{job_id}": TOUCH,
    "GET api/clusters/{name}/jobs/{job_id}/log": TOUCH,
    "GET api/clusters/{name}/jobs/{job_id}/log/part": TOUCH,
    "GET api/clusters/{name}/jobs/{job_id}/log/search": TOUCH,
    "GET api/clusters/{name}/jobs/{job_id}/metrics": Row(ALL),
    "GET api/clusters/{name}/jobs/{job_id}/metrics/series": Row(ALL),
    "GET api/clusters/{name}/jobs/{job_id}/metrics/csv": Row(ALL),
    "GET api/clusters/{name}/mlflow/{team}/{path:path}": Row(WORK, WORK, ADMIN),
    "POST api/clusters/{name}/mlflow/{team}/{path:path}": Row(WORK, WORK, ADMIN),
    "GET api/clusters/{name}/trainings": Row(ALL),
    "GET api/clusters/{name}/trainings/groups": Row(ALL),
    "GET api/clusters/{name}/trainings/csv": Row(ALL),
    "GET api/clusters/{name}/trainings/{job_id}/compare/{other_id}": TOUCH,
    "PATCH api/clusters/{name}/trainings/{job_id}": Row(WORK, LEAD, ADMIN, body={}),
    "GET api/clusters/{name}/jobs/{job_id}/runs": Row(ALL),
    "GET api/clusters/{name}/jobs/{job_id}/script": TOUCH,
    "POST api/clusters/{name}/jobs/{job_id}/requeue": TOUCH,
    "POST api/clusters/{name}/jobs/{job_id}/stacks": TOUCH,
    # Each job has its own result, also if the person may not act on it.
    "POST api/clusters/{name}/jobs/actions": Row(WORK, body={"action": "cancel", "jobs": ["11"]}),
    "POST api/clusters/{name}/jobs/{job_id}/hold": TOUCH,
    "POST api/clusters/{name}/jobs/{job_id}/release": TOUCH,
    "GET api/clusters/{name}/jobs/{job_id}/tasks": Row(WORK),
    "GET api/clusters/{name}/jobs/{job_id}/lineage": TOUCH,
    "GET api/clusters/{name}/jobs/{job_id}/alternatives": Row(WORK, ADMIN, ADMIN),
    "POST api/clusters/{name}/jobs/{job_id}/retry": OWNER,
    "POST api/clusters/{name}/jobs/{job_id}/rerun": OWNER,
    "POST api/clusters/{name}/jobs/{job_id}/resume": replace(OWNER, body={"step": 4000}),
    "POST api/clusters/{name}/run": Row(WORK, body={"argv": ["python", "train.py"]}),
    "GET api/clusters/{name}/bundles/{digest}": Row(WORK),
    "PUT api/clusters/{name}/bundles/{digest}": Row(WORK),
    "POST api/clusters/{name}/exec": Row(WORK, ADMIN, ADMIN, body={"argv": ["id"], "user": "{user}"}),
    "POST api/clusters/{name}/commands": Row(WORK, ADMIN, ADMIN, body={"argv": ["id"], "user": "{user}"}),
    "POST api/clusters/{name}/commands/{key}/input": Row(WORK),
    "POST api/clusters/{name}/terminals": Row(WORK, body={"input": "0123456789abcdef0123456789abcdef"}),
    "POST api/clusters/{name}/terminals/{key}/input": Row(WORK),
    "PUT api/clusters/{name}/terminals/{key}/size": Row(WORK, body={"rows": 24, "columns": 80}),
    "POST api/clusters/{name}/pipelines": Row(
        WORK, body={"document": {"name": "p", "steps": {"one": {"run": "true"}}}}
    ),
    "GET api/clusters/{name}/lineage": Row(WORK),
    "GET api/clusters/{name}/pipelines": Row(ALL),
    "GET api/clusters/{name}/pipelines/{pipeline}": Row(ALL),
    "POST api/clusters/{name}/pipelines/{pipeline}/retry": OWNER,
    "POST api/clusters/{name}/services": Row(WORK, body={"document": SERVICE_FILE}),
    "GET api/clusters/{name}/services": Row(ALL),
    "GET api/clusters/{name}/services/{service}": Row(ALL),
    "GET api/clusters/{name}/services/{service}/metrics": Row(ALL),
    "POST api/clusters/{name}/services/{service}/stop": TOUCH,
    "POST api/clusters/{name}/services/{service}/scale": Row(WORK, LEAD, ADMIN, body={"min": 1, "max": 1}),
    "POST api/clusters/{name}/services/{service}/keys": Row(WORK, LEAD, ADMIN, body={}),
    "GET api/clusters/{name}/services/{service}/keys": TOUCH,
    "DELETE api/clusters/{name}/services/{service}/keys/{service_key}": TOUCH,
    "POST api/clusters/{name}/batches": Row(WORK, body=BATCH),
    "GET api/clusters/{name}/batches": Row(ALL),
    "GET api/clusters/{name}/batches/{batch}": Row(ALL),
    "POST api/clusters/{name}/batches/{batch}/stop": TOUCH,
    "POST api/clusters/{name}/batches/{batch}/retry": OWNER,
    "POST api/clusters/{name}/pipeline-schedules": Row(
        WORK, body={"document": {"name": "p", "schedule": "0 3 * * *", "steps": {"a": {"run": "true"}}}}
    ),
    "GET api/clusters/{name}/pipeline-schedules": Row(ALL),
    "DELETE api/clusters/{name}/pipeline-schedules/{schedule}": replace(OWNER, body=None),
    "GET api/clusters/{name}/models": Row(WORK),
    "GET api/clusters/{name}/models/{team}/{model}": Row(WORK, WORK, ADMIN),
    "POST api/clusters/{name}/models/{team}/{model}/approvals": Row(
        LEAD | NODES, other=NODES, body={"version": 1, "name": "licence"}
    ),
    "POST api/clusters/{name}/promotions": Row(WORK, body=PROMOTION),
    "GET api/clusters/{name}/promotions": Row(WORK),
    "GET api/clusters/{name}/promotions/{promotion}": Row(WORK, WORK, ADMIN),
    "GET api/clusters/{name}/promotions/{promotion}/manifest": Row(WORK, WORK, ADMIN),
    "GET api/clusters/{name}/required-gates/{team}/{alias}": Row(WORK, WORK, ADMIN),
    "PUT api/clusters/{name}/required-gates/{team}/{alias}": Row(LEAD, other=ADMIN, body={"gates": {}}),
    "GET api/clusters/{name}/signing-key": Row(ALL),
    "POST api/clusters/{name}/sweeps": Row(WORK, body={"document": SWEEP_FILE}),
    "GET api/clusters/{name}/sweeps": Row(ALL),
    "GET api/clusters/{name}/sweeps/{sweep}": Row(ALL),
    "POST api/clusters/{name}/sweeps/{sweep}/stop": TOUCH,
    "POST api/clusters/{name}/sweeps/{sweep}/best": OWNER,
    "POST api/clusters/{name}/sweeps/{sweep}/trials": Row(WORK, ADMIN, ADMIN, body={"parameters": [{"a": 1}]}),
    "GET api/clusters/{name}/notebooks": Row(ALL),
    "POST api/clusters/{name}/notebooks": Row(WORK, body={"gpus": 1}),
    "GET api/clusters/{name}/job-secrets": Row(WORK),
    "PUT api/clusters/{name}/job-secrets/{secret}": Row(
        WORK, ADMIN, ADMIN, body={"value": "a long value", "user": "{user}"}
    ),
    "DELETE api/clusters/{name}/job-secrets/{secret}": Row(WORK),
    "GET api/clusters/{name}/notebooks/{notebook_id}": NOTEBOOK,
    "POST api/clusters/{name}/notebooks/{notebook_id}/link": OPENED,
    "DELETE api/clusters/{name}/notebooks/{notebook_id}": NOTEBOOK,
    "GET api/tokens": Row(ALL),
    "POST api/tokens": Row(ALL, ADMIN, ADMIN, body={"person": "{user}"}),
    "DELETE api/tokens/{token_id}": Row(ALL, ADMIN, ADMIN, hidden=True),
    "POST api/signin-links": Row(ALL),
    "GET api/sessions": Row(ALL),
    "DELETE api/sessions/{session_id}": Row(ALL, ADMIN, ADMIN, hidden=True),
    "GET api/people": Row(ADMIN),
    "GET api/people/{person}": Row(ADMIN),
    "PUT api/people/{person}": Row(ADMIN, body={"role": "operator"}),
    "DELETE api/people/{person}": Row(ADMIN),
    "POST api/people/{person}/disable": Row(ADMIN),
    "POST api/people/{person}/enable": Row(ADMIN),
    "GET api/audit": Row(ADMIN),
    "GET api/audit/export": Row(ADMIN),
    "GET api/audit/verify": Row(ADMIN),
    "GET api/clusters/{name}/teams": Row(ALL),
    "GET api/clusters/{name}/limits": Row(ALL),
    "GET api/clusters/{name}/users": Row(ALL),
    "GET api/clusters/{name}/nodes": Row(ALL),
    "GET api/clusters/{name}/usage": Row(ALL),
    "GET api/clusters/{name}/usage/runs": Row(ALL),
    "GET api/clusters/{name}/usage/nodes": Row(ALL),
    "GET api/clusters/{name}/invoice": Row(NODES),
    "GET api/clusters/{name}/invoices": Row(NODES),
    "POST api/clusters/{name}/invoice/close": Row(ADMIN, body={"period": "1970-01"}),
    "GET api/clusters/{name}/chargeback": Row(ALL),
    "GET api/clusters/{name}/budgets": Row(ALL),
    "GET api/clusters/{name}/goodput": Row(ALL),
    "GET api/clusters/{name}/goodput/checkpoints": Row(ALL),
    "GET api/clusters/{name}/goodput/jobs/{job_id}": Row(ALL),
    "GET api/clusters/{name}/energy": Row(ALL),
    "GET api/clusters/{name}/capacity": Row(ALL),
    "GET api/clusters/{name}/forecast": Row(ALL),
    "GET api/clusters/{name}/purchase": Row(ALL),
    "POST api/clusters/{name}/estimate": Row(WORK, body={"submit": {"script": "#!/bin/sh\n"}}),
    "POST api/clusters/{name}/ledger/rebuild": Row(ADMIN),
    # pages
    "GET /": Row(ALL),
    "GET /clusters": Row(PUBLIC),
    "GET /incidents": Row(ALL),
    "GET /clusters/{name}/events": Row(ALL),
    "GET /clusters/{name}/incidents": Row(ALL),
    "GET /clusters/{name}/incidents/{number}": Row(ALL),
    "POST /clusters/{name}/incidents/{number}/return": Row(NODES),
    "GET /clusters/{name}/fabric": Row(ALL),
    "GET /clusters/{name}/nodes": Row(ALL),
    "GET /clusters/{name}/fabric-test": Row(ALL),
    "POST /clusters/{name}/fabric-test": Row(NODES),
    "POST /clusters/{name}/whatif": Row(NODES),
    "GET /clusters/{name}/schedule": Row(ALL),
    "GET /clusters/{name}/schedule/live": Row(ALL, leaves=True),
    "POST /clusters/{name}/schedule": Row(WORK),
    "POST /clusters/{name}/schedule/apply": Row(ADMIN),
    "GET /clusters/{name}/scale": Row(ALL),
    "POST /clusters/{name}/scale": Row(WORK),
    "POST /clusters/{name}/scale/apply": Row(ADMIN),
    "GET /clusters/{name}/nodes/{node}": Row(ALL),
    "POST /clusters/{name}/nodes/{node}/drain": Row(NODES),
    "POST /clusters/{name}/nodes/{node}/return": Row(NODES),
    "POST /clusters/{name}/nodes/{node}/reboot": Row(NODES),
    "POST /clusters/{name}/nodes/{node}/test": Row(NODES),
    "GET /clusters/{name}": Row(ALL),
    "GET /clusters/{name}/live": Row(ALL, leaves=True),
    "GET /clusters/{name}/storage": Row(ALL),
    "GET /clusters/{name}/teams": Row(ALL),
    "GET /clusters/{name}/costs": Row(ALL),
    "GET /clusters/{name}/costs/note": Row(ALL),
    "GET /tokens": Row(ALL),
    "POST /tokens": Row(ALL),
    "POST /sessions/{session_id}/end": Row(ALL, ADMIN, ADMIN, hidden=True),
    "POST /tokens/{token_id}/revoke": Row(ALL, ADMIN, ADMIN, hidden=True),
    "GET /people": Row(ADMIN),
    "POST /people": Row(ADMIN),
    "POST /people/{person}": Row(ADMIN),
    "POST /people/{person}/remove": Row(ADMIN),
    "POST /people/{person}/disable": Row(ADMIN),
    "POST /people/{person}/enable": Row(ADMIN),
    "GET /audit": Row(ADMIN),
    "GET /costs": Row(ALL),
    "GET /offers": Row(ALL),
    "GET /size": Row(ALL),
    "GET /settings": Row(ADMIN),
    "GET /signin": Row(PUBLIC),
    "POST /signin": Row(PUBLIC),
    "POST /signin/link": Row(PUBLIC),
    "GET /signin/again": Row(PUBLIC),
    "GET /signin/oidc": Row(PUBLIC),
    "GET /signin/oidc/back": Row(PUBLIC),
    "POST /signin/oidc/logout": Row(PUBLIC),
    "GET /search": Row(ALL),
    "GET /search/clusters": Row(ALL),
    "GET /clusters/{name}/queue": Row(ALL),
    "GET /clusters/{name}/trainings": Row(ALL),
    "GET /clusters/{name}/trainings/compare": Row(WORK),
    "GET /clusters/{name}/jobs/{job_id}": Row(ALL),
    "GET /clusters/{name}/jobs/{job_id}/efficiency": Row(ALL),
    "GET /clusters/{name}/jobs/{job_id}/live": Row(ALL, leaves=True),
    "POST /clusters/{name}/jobs/{job_id}/resume": Row(WORK, ADMIN, ADMIN),
    "GET /clusters/{name}/jobs/{job_id}/alternatives": Row(WORK, ADMIN, ADMIN),
    "POST /clusters/{name}/jobs/{job_id}/{verb}": TOUCH,
    "GET /clusters/{name}/submit": Row(WORK),
    "POST /clusters/{name}/submit": Row(WORK),
    "POST /clusters/{name}/submit/check": Row(WORK),
    "GET /clusters/{name}/queue/live": Row(ALL, leaves=True),
    "POST /signout": Row(PUBLIC),
    "GET /clusters/{name}/terminal": Row(WORK),
    "GET /clusters/{name}/notebooks": Row(ALL),
    "POST /clusters/{name}/notebooks": Row(WORK),
    "GET /clusters/{name}/notebooks/{notebook_id}/open": OPENED,
    "POST /clusters/{name}/notebooks/{notebook_id}/stop": NOTEBOOK,
    "GET /clusters/{name}/services": Row(ALL),
    "GET /clusters/{name}/services/{service}": Row(ALL),
    "POST /clusters/{name}/services/{service}/stop": TOUCH,
    "GET /clusters/{name}/batches": Row(ALL),
    "GET /clusters/{name}/batches/{batch}": Row(ALL),
    "POST /clusters/{name}/batches/{batch}/stop": TOUCH,
    "POST /clusters/{name}/batches/{batch}/retry": OWNER,
    "GET /clusters/{name}/models": Row(WORK),
    "GET /clusters/{name}/models/{team}/{model}": Row(WORK, WORK, ADMIN),
    "GET /clusters/{name}/lineage": Row(WORK),
    "GET /clusters/{name}/pipelines": Row(ALL),
    "GET /clusters/{name}/pipelines/{pipeline}": Row(ALL),
    "POST /clusters/{name}/pipelines/{pipeline}/retry": OWNER,
    "GET /clusters/{name}/sweeps": Row(ALL),
    "GET /clusters/{name}/sweeps/{sweep}": Row(ALL),
    "POST /clusters/{name}/sweeps/{sweep}/stop": TOUCH,
    "GET /new": Row(WORK),
    "POST /new": Row(WORK),
    "POST /new/check": Row(WORK),
    "POST /new/apply": Row(ADMIN),
    "GET /operations/{operation_id}": Row(ALL),
    "GET /operations/{operation_id}/live": Row(ALL),
    # SCIM
    "GET /scim/v2/ServiceProviderConfig": Row(NO_ROLE),
    "GET /scim/v2/ResourceTypes": Row(NO_ROLE),
    "GET /scim/v2/ResourceTypes/{resource_type}": Row(NO_ROLE),
    "GET /scim/v2/Schemas": Row(NO_ROLE),
    "GET /scim/v2/Schemas/{schema}": Row(NO_ROLE),
    "GET /scim/v2/Users": Row(NO_ROLE),
    "POST /scim/v2/Users": Row(NO_ROLE, body=SCIM_USER),
    "GET /scim/v2/Users/{user_id}": Row(NO_ROLE),
    "PUT /scim/v2/Users/{user_id}": Row(NO_ROLE, body={"userName": "yan", "externalId": "y1"}),
    "PATCH /scim/v2/Users/{user_id}": Row(NO_ROLE, body=SCIM_PATCH),
    "DELETE /scim/v2/Users/{user_id}": Row(NO_ROLE),
    "GET /scim/v2/Groups": Row(NO_ROLE),
    "POST /scim/v2/Groups": Row(NO_ROLE, body={"displayName": "staff"}),
    "GET /scim/v2/Groups/{group_id}": Row(NO_ROLE),
    "PUT /scim/v2/Groups/{group_id}": Row(NO_ROLE, body={"displayName": "guests"}),
    "PATCH /scim/v2/Groups/{group_id}": Row(NO_ROLE, body=SCIM_PATCH),
    "DELETE /scim/v2/Groups/{group_id}": Row(NO_ROLE),
}
