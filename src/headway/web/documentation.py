"""The documentation site at /docs, and the mapping of dashboard pages to documentation pages."""

from __future__ import annotations

from pathlib import Path

SITE = Path(__file__).parent / "static" / "docs"  # built by tools/docs.py

# Key of a page (`tab` of a cluster's page, `here` of the server's) -> path of its documentation, without .md.
PAGE_TO_DOC = {
    "overview": "howto/dashboard",
    "queue": "howto/jobs",
    "schedule": "howto/reservations",
    "submit": "howto/jobs",
    "trainings": "howto/training-metrics",
    "nodes": "howto/faults",
    "storage": "howto/storage",
    "incidents": "concepts/incidents",
    "events": "howto/dashboard",
    "notebooks": "howto/dashboard",
    "terminal": "howto/terminal",
    "sweeps": "howto/sweeps",
    "pipelines": "howto/jobs",
    "services": "howto/services",
    "batches": "howto/batch-inference",
    "teams": "howto/access",
    "costs": "howto/costs",
    "all_costs": "howto/costs",
    "home": "howto/dashboard",
    "offers": "howto/cloud-prices",
    "size": "howto/size",
    "new": "reference/cluster-yaml",
    "people": "howto/access",
    "audit": "howto/access",
    "settings": "installation",
    "tokens": "howto/access",
}


def site_is_built() -> bool:
    """Returns whether this installation includes the documentation site."""
    return (SITE / "index.html").is_file()


def doc_address(page: str) -> str:
    """Returns the address of a page's documentation; the documentation's start for an unknown page, "" without a site."""
    if not site_is_built():
        return ""
    return f"/docs/{PAGE_TO_DOC[page]}/" if page in PAGE_TO_DOC else "/docs/"
