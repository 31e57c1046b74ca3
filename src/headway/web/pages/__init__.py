"""The routes of the dashboard, one module per page. A page calls `headway.services`, passes the result through
`web.views` and renders a template.

Not here: what a template shows (`web.views`), decisions (`headway.services`)."""

from __future__ import annotations

from types import ModuleType

from headway.web.pages.access import audit, people, settings, sign_in, tokens
from headway.web.pages.billing import all_costs, costs, offers, size, teams
from headway.web.pages.cluster import (
    activity,
    cluster_form,
    fabric_test,
    home,
    incidents,
    node,
    nodes,
    operations,
    overview,
    scale,
    schedule,
    search,
    storage,
)
from headway.web.pages.jobs import (
    batches,
    job,
    lineage,
    models,
    notebooks,
    pipelines,
    queue,
    services,
    submit,
    sweeps,
    terminal,
    trainings,
)

PAGES: tuple[ModuleType, ...] = (
    home,
    search,
    cluster_form,
    operations,
    overview,
    queue,
    submit,
    job,
    trainings,
    incidents,
    activity,
    node,
    notebooks,
    terminal,
    sweeps,
    pipelines,
    lineage,
    models,
    services,
    batches,
    nodes,
    fabric_test,
    scale,
    schedule,
    storage,
    sign_in,
    tokens,
    people,
    teams,
    costs,
    all_costs,
    offers,
    size,
    audit,
    settings,
)
