"""Results of the search in the header: pages, clusters, jobs and nodes, as links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from headway.services.read_model.quick_search import FoundJob, FoundNode, SearchResults
from headway.web import navigation
from headway.web.views.queue.queue_rows import job_page
from headway.web.views.state_wording import job_word


@dataclass(frozen=True, slots=True)
class SearchRow:
    """One result."""

    address: str
    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SearchSection:
    """The results of one kind."""

    title: str
    rows: tuple[SearchRow, ...]


def search_sections(found: SearchResults, text: str, role: str, cluster: str) -> tuple[SearchSection, ...]:
    """Returns the results in sections without empty ones. `cluster` is that of the page in which the person searches; "" on
    pages of the server."""
    wanted = text.strip().casefold()
    pages = tuple(row for row in _pages(role, cluster) if wanted in f"{row.name} {row.detail}".casefold())
    clusters = tuple(SearchRow(_at(name), name) for name in found.clusters)
    jobs = [_job(one) for one in found.jobs]
    if cluster and wanted.isdecimal() and not any(one.job.id == int(wanted) for one in found.jobs):
        jobs.append(SearchRow(f"{_at(cluster)}/jobs/{wanted}", f"Job {wanted}", f"{cluster}: look in its past jobs"))
    sections = (
        SearchSection("Jobs", tuple(jobs)),
        SearchSection("Nodes", tuple(_node(one) for one in found.nodes)),
        SearchSection("Pages", pages),
        SearchSection("Clusters", clusters),
    )
    return tuple(section for section in sections if section.rows)


def _pages(role: str, cluster: str) -> Iterator[SearchRow]:
    if cluster:
        for tab in navigation.tabs(navigation.CLUSTER, role):
            yield SearchRow(f"{_at(cluster)}{tab.path}", tab.title, cluster)
    for tab in navigation.tabs(navigation.SERVER, role):
        yield SearchRow(tab.path, tab.title, "all clusters" if tab.key == "incidents" else "")


def _job(found: FoundJob) -> SearchRow:
    job = found.job
    word = job_word(job.state, job.reason)[1]
    return SearchRow(
        f"{_at(found.cluster)}/jobs/{job_page(job)}",
        f"{job.label} {job.name}",
        f"{word} · {job.user} · {found.cluster}",
    )


def _node(found: FoundNode) -> SearchRow:
    detail = found.node.reason or ", ".join(found.node.partitions)
    return SearchRow(
        f"{_at(found.cluster)}/nodes/{quote(found.node.name)}", found.node.name, f"{detail} · {found.cluster}"
    )


def _at(cluster: str) -> str:
    return f"/clusters/{quote(cluster)}"
