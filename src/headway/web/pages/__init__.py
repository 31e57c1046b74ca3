"""One module a page (with the small pages that belong to it): its router, and what it shows made from the API's answers."""

from __future__ import annotations

from types import ModuleType

from headway.web.pages import (
    audit,
    costs,
    events,
    fabric,
    home,
    incidents,
    job,
    new,
    nodes,
    notebooks,
    operations,
    people,
    queue,
    scale,
    settings,
    signin,
    storage,
    submit,
    teams,
    tokens,
)

PAGES: tuple[ModuleType, ...] = (
    home,
    new,
    operations,
    queue,
    submit,
    job,
    incidents,
    events,
    nodes,
    notebooks,
    fabric,
    scale,
    storage,
    signin,
    tokens,
    people,
    teams,
    costs,
    audit,
    settings,
)
