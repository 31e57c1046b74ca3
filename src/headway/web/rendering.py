"""Renders templates into responses, with the HTTP headers that every page carries."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from headway.api.http.security_headers import CONTENT_SECURITY_POLICY, PAGE_HEADERS
from headway.errors import Refused
from headway.jobs.explain.phrases import format_wait
from headway.services.access.role_rights import Principal
from headway.web import navigation, page_context
from headway.web.documentation import doc_address
from headway.web.views.banners import cluster_banners
from headway.web.views.state_wording import count, duration, incident_kind, node_list, seconds, sentence, slurm_time

STATIC = Path(__file__).parent / "static"
VENDOR = (
    "htmx.min.js",
    "htmx-ext-sse.min.js",
    "uplot.iife.min.js",
    "uplot.min.css",
    "xterm.js",
    "xterm.css",
    "xterm-addon-fit.js",
)


class CachedStaticFiles(StaticFiles):
    """Static files. Browsers keep a file permanently if its link contains the content's hash, and revalidate any other."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        named = b"v=" in scope.get("query_string", b"")
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable" if named else "no-cache"
        answer.headers["X-Content-Type-Options"] = "nosniff"
        return answer


class Documentation(CachedStaticFiles):
    """The documentation site. Its style sheets contain icons as data: images; otherwise its policy is that of every page."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["Content-Security-Policy"] = f"{CONTENT_SECURITY_POLICY}; img-src 'self' data:"
        return answer


def static_files() -> CachedStaticFiles:
    """Returns the static files. Raises Refused if the browser libraries are missing, so that no page is shown
    without them."""
    missing = [name for name in VENDOR if not (STATIC / "vendor" / name).is_file()]
    if missing:
        raise Refused(
            f"the page's browser libraries are missing: {', '.join(missing)}",
            hint="run `make setup` (or `python tools/assets.py`) in the source tree, or install a built package",
        )
    return CachedStaticFiles(directory=STATIC)


@cache
def asset_url(name: str) -> str:
    """Returns the address of a static file, with its content's hash."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]
    return f"/static/{name}?v={digest}"


def clock(at: float) -> str:
    """Returns a UTC time for browsers without scripts, with the date unless it is today; scripts show the viewer's
    local time."""
    moment, now = (datetime.fromtimestamp(unix_s, UTC) for unix_s in (at, time.time()))
    return moment.strftime("%H:%M:%S UTC") if moment.date() == now.date() else day(at)


def day(at: float) -> str:
    """Returns date and time in UTC, for browsers without scripts."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def ago(at: float) -> str:
    """Returns the time since then, in words."""
    return duration(time.time() - at)


def until(at: float) -> str:
    """Returns the time until then, in words."""
    return format_wait(at - time.time())


def left(at: float) -> str:
    """Returns the time until then in squeue's format."""
    return slurm_time(max(0, int(at - time.time())))


def iso(at: float) -> str:
    """Returns the UTC time in ISO 8601, with seconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


@cache
def templates() -> Environment:
    """Returns the page templates: values are escaped, an unknown name is an error."""
    made = Environment(
        loader=PackageLoader("headway.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # otherwise each rendering checks the files for changes
    )
    made.filters.update(
        duration=duration,
        seconds=seconds,
        clock=clock,
        day=day,
        ago=ago,
        iso=iso,
        until=until,
        left=left,
        node_list=node_list,
    )
    made.globals.update(
        doc_address=doc_address,
        asset=asset_url,
        count=count,
        incident_kind=incident_kind,
        sentence=sentence,
        has_tab=lambda key: any(tab.key == key for tab in navigation.SERVER + navigation.CLUSTER),
        current_cluster=page_context.current_cluster.get,
        flash_message=page_context.flash_message.get,
        cluster_banners=cluster_banners,
        cluster_tabs=lambda role: navigation.tabs(navigation.CLUSTER, role),
        server_tabs=lambda role: navigation.tabs(navigation.SERVER, role),
        cluster_groups=lambda role: navigation.tab_groups(navigation.CLUSTER, role),
        server_groups=lambda role: navigation.tab_groups(navigation.SERVER, role),
    )
    return made


def render(template: str, *, status: int = 200, viewer: Principal | None = None, **values: object) -> HTMLResponse:
    """Returns a whole page."""
    text = templates().get_template(template).render(viewer=viewer, now=time.time(), **values)
    return HTMLResponse(text, status_code=status, headers=PAGE_HEADERS)


def render_part(name: str, view: object) -> str:
    """Returns the HTML of one part, as sent when it has changed."""
    return templates().get_template(f"parts/{name}.html").render(v=view, now=time.time())


def compact_json(value: object) -> str:
    """Returns the value as JSON without spaces. Raises ValueError for NaN."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
