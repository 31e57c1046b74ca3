"""Whether the connection to PostgreSQL is encrypted and its server's certificate verified, from the database's URL."""

from __future__ import annotations

import ssl
from typing import Any

from sqlalchemy import URL, make_url

from headway.errors import Refused
from headway.validation.hosts import is_loopback

TlsArgument = dict[str, Any]

VERIFIED = "verify-full"
_MODES = ("disable", "allow", "prefer", "require", "verify-ca", VERIFIED)  # of libpq


def tls_mode(url: URL) -> str:
    """Returns libpq's sslmode of a URL, `verify-full` by default. "" for a URL without sslmode to a socket or to this
    machine: no network is between. Raises Refused for an unknown mode."""
    mode = str(url.query.get("sslmode", ""))
    if mode and mode not in _MODES:
        raise Refused(f"sslmode of HEADWAY_DATABASE_URL is {mode!r}", hint=f"use one of {', '.join(_MODES)}")
    return mode or ("" if _is_local(url) else VERIFIED)


def is_unverified(url: str) -> bool:
    """Returns whether the URL, "" for SQLite, permits a connection to another machine whose certificate is not verified."""
    if not url or url.startswith("sqlite"):
        return False
    parsed = make_url(url)
    return not _is_local(parsed) and tls_mode(parsed) != VERIFIED


def without_tls_options(url: URL) -> URL:
    """Returns the URL without the options of libpq that SQLAlchemy's driver does not know."""
    return url.difference_update_query(["sslmode", "sslrootcert"])


def tls_argument(url: URL) -> TlsArgument:
    """Returns the argument `ssl` of asyncpg for this URL, none for the driver's default. Raises Refused if the file of
    `sslrootcert` can't be used."""
    mode, file = tls_mode(url), str(url.query.get("sslrootcert", ""))
    if not mode:
        return {}
    if mode not in ("verify-ca", VERIFIED):
        return {"ssl": mode}
    try:
        context = ssl.create_default_context(cafile=file or None)
    except OSError as error:  # ssl.SSLError is one
        raise Refused(
            f"sslrootcert of HEADWAY_DATABASE_URL, {file}, can't be used: {error.strerror or error}",
            hint="name a file with the certificate of the authority that signed PostgreSQL's",
        ) from None
    context.check_hostname = mode == VERIFIED
    return {"ssl": context}


def _is_local(url: URL) -> bool:
    """Returns whether all hosts of the URL are sockets or this machine. A URL without a host means a socket."""
    hosts = [url.host] if url.host else url.query.get("host", ())
    return all(map(_is_local_host, [hosts] if isinstance(hosts, str) else hosts))


def _is_local_host(host: str) -> bool:
    """`host`: a folder with a socket, or a name or address with or without a port."""
    return host.startswith("/") or is_loopback(host) or is_loopback(host.rpartition(":")[0].strip("[]"))
