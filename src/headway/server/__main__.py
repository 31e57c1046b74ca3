"""`python -m headway.server`: runs the server in the foreground. Environment variables configure it.

HEADWAY_STATE          the state folder
HEADWAY_HOST           address to listen on (default 127.0.0.1: loopback only)
HEADWAY_PORT           default 7878, or a free port if 7878 is taken; 0 = any free port
HEADWAY_NOTEBOOK_PORT  the separate port for notebooks: default 7879, or a free port if 7879 is taken; 0 = any free port
HEADWAY_NOTEBOOK_URL   how browsers reach the notebook port if under another name: https://*.notebooks.example.org (one host
                       name per notebook), or https://notebooks.example.org (one for all)
HEADWAY_DATABASE_URL   postgresql://USER@HOST/DATABASE[?sslrootcert=FILE]; unset = SQLite in the state folder
HEADWAY_DATA           folder of the clusters' data, the same for all servers of a database; unset = the state folder
HEADWAY_DATASET_ROOTS  folders that datasets may come from, separated by ":"; unset = any except system folders
HEADWAY_SUBMITS_PER_MINUTE  jobs that one person may submit a minute, and at once (default 600); admins have no limit
HEADWAY_OFFERS_URL     where `headway offers --refresh` gets prices of clouds: a copy of gpuhunt's catalogues; unset = its own

TLS and reverse proxies: headway.server.listen_settings. The sign-in provider: headway.server.oidc_settings. Export of the
audit trail: headway.server.audit_settings. Access for people: docs/howto/sign-in-tls.md.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from headway import paths
from headway.errors import HeadwayError, Refused

_M_ARENA_MAX = -8  # malloc.h of glibc


def main() -> int:
    """Runs the server until it is stopped and returns the exit code."""
    gc.disable()  # collecting garbage during imports only costs time; main.ready turns collection on again
    _use_one_malloc_arena()
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # structlog would load it for a console: 3 MB
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # httpx's own command, with pygments
    from headway.server.audit_settings import read_audit_settings
    from headway.server.listen_settings import DEFAULT_PORT, NOTEBOOK_PORT, read_listen_settings, read_origin
    from headway.server.main import NotebookAddress, serve
    from headway.server.oidc_settings import read_oidc_settings
    from headway.services.access.submit_rate import DEFAULT_SUBMITS_PER_MINUTE

    env = os.environ
    try:
        port = _port(env, "HEADWAY_PORT", DEFAULT_PORT)
        aside = _port(env, "HEADWAY_NOTEBOOK_PORT", 0 if port == 0 else NOTEBOOK_PORT)
        submits = _submits_per_minute(env, DEFAULT_SUBMITS_PER_MINUTE)
        roots = tuple(Path(root).resolve() for root in env.get("HEADWAY_DATASET_ROOTS", "").split(":") if root)
        serve(
            paths.state_dir(),
            env.get("HEADWAY_HOST") or "127.0.0.1",
            port,
            env.get("HEADWAY_DATABASE_URL", ""),
            data_dir=Path(env["HEADWAY_DATA"]).absolute() if env.get("HEADWAY_DATA") else None,
            dataset_roots=roots,
            notebooks=NotebookAddress(aside, read_origin(env, "HEADWAY_NOTEBOOK_URL")),
            listen=read_listen_settings(env, paths.state_dir()),
            oidc=read_oidc_settings(env),
            audit=read_audit_settings(env),
            submits_per_minute=submits,
            offers_url=_offers_url(env),
        )
    except HeadwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"the server can't run on {paths.state_dir()}: {error.strerror or error}\n")
        return 1
    return 0


def _use_one_malloc_arena() -> None:
    """Makes glibc serve all threads from one heap: a heap for each thread costs 10 MB, and the interpreter's lock lets one
    thread allocate at a time anyway. Other C libraries keep their own way."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def _port(env: Mapping[str, str], name: str, default: int) -> int:
    """Returns the port in an environment variable, or the default if it is unset. Raises Refused if it is not 0 to 65535."""
    text = env.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 1 << 16):
        raise Refused(f"{name} is not a port: {text[:40]!r}", hint="give a number up to 65535; 0 uses a free port")
    return int(text)


def _offers_url(env: Mapping[str, str]) -> str:
    """Returns HEADWAY_OFFERS_URL without a slash at the end. Raises Refused if it is not an address of HTTP."""
    from headway.catalog.gpuhunt_catalog import PUBLISHED_AT

    url = env.get("HEADWAY_OFFERS_URL") or PUBLISHED_AT
    if not url.startswith(("https://", "http://")):
        raise Refused(f"HEADWAY_OFFERS_URL is not an address: {url[:80]!r}", hint="give https://HOST/FOLDER")
    return url.rstrip("/")


def _submits_per_minute(env: Mapping[str, str], default: int) -> int:
    """Returns HEADWAY_SUBMITS_PER_MINUTE. Raises Refused if it is not a number from 1 to 999999."""
    text = env.get("HEADWAY_SUBMITS_PER_MINUTE") or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 7 and int(text)):
        raise Refused(f"HEADWAY_SUBMITS_PER_MINUTE is not a number from 1 to 999999: {text[:40]!r}", hint="give 600")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
