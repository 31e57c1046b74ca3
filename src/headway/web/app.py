"""Adds the dashboard to the server's app: pages, static files, documentation."""

from __future__ import annotations

from fastapi import FastAPI

from headway.web import documentation
from headway.web.pages import PAGES
from headway.web.rendering import Documentation, static_files


def mount(app: FastAPI) -> None:
    """Adds the dashboard to `app`. Raises Refused if the browser libraries are missing."""
    app.mount("/static", static_files(), name="static")
    if documentation.site_is_built():
        app.mount("/docs", Documentation(directory=documentation.SITE, html=True), name="docs")
    for page in PAGES:
        app.router.routes.extend(page.router.routes)  # as in create_app, for the same reason
