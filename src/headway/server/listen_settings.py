"""Reads the server's addresses, TLS files and reverse proxies from environment variables.

HEADWAY_PUBLIC_URL       how people reach it, if not by HEADWAY_HOST and port: https://headway.example.org
HEADWAY_TLS_CERT         a PEM file: the certificate, then its intermediate certificates; with HEADWAY_TLS_KEY the server
HEADWAY_TLS_KEY          itself uses TLS, on the notebook port too; renewed files are loaded without a restart
HEADWAY_TLS_SELF_SIGNED  1: TLS with a certificate that the server makes, whose fingerprint clients pin
HEADWAY_INSECURE         1: listen on an address other than loopback without TLS
HEADWAY_TRUSTED_PROXIES  addresses or networks of reverse proxies, separated by ",": only their X-Forwarded headers are
                         trusted
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from headway.errors import Refused
from headway.server.tls_certificate import Tls, load_certificate, own_certificate
from headway.validation.hosts import bracketed, is_loopback

DEFAULT_PORT = 7878
NOTEBOOK_PORT = 7879
_TLS_WAYS = "--tls-cert FILE --tls-key FILE"


@dataclass(frozen=True)
class ListenSettings:
    """Settings of how the server is reached."""

    url: str = ""  # how people reach the server; "" = by its own address
    tls: Tls | None = None
    proxies: tuple[str, ...] = ()
    insecure: bool = False  # other machines may reach the server without TLS

    def require_tls(self, host: str) -> None:
        """Raises Refused if other machines would reach the server without TLS, unless the settings allow that."""
        if self.tls or self.insecure or is_loopback(host):
            return
        raise Refused(
            f"the server would listen on {host} (HEADWAY_HOST) without TLS: passwords, tokens and jobs could be read and "
            "changed on the network",
            hint=f"give a certificate ({_TLS_WAYS}), or let the server make one (--tls-self-signed); behind a reverse "
            "proxy on this machine leave HEADWAY_HOST unset; --insecure listens without TLS",
        )

    def hosts(self, host: str) -> tuple[str, ...]:
        """Returns the host names that requests may be addressed to; () = any."""
        names = {"127.0.0.1", "localhost", "[::1]"}
        if is_loopback(host):
            names.add(bracketed(host))
        if self.url:
            names.add(bracketed(urlsplit(self.url).hostname or ""))
        if self.tls:
            names.update(self.tls.names)
        own = self.tls is not None and self.tls.own  # pinned by its fingerprint, under any name of the machine
        known = is_loopback(host) or ((self.url or self.tls) and not own)
        if any(name.startswith("*") for name in names) or not known:
            return ()
        return tuple(sorted(names))


DEFAULT_LISTEN_SETTINGS = ListenSettings()


def read_listen_settings(env: Mapping[str, str], state_dir: Path) -> ListenSettings:
    """Returns the settings from environment variables; `state_dir` holds the server's own certificate. Raises Refused
    for invalid ones."""
    found = ListenSettings(
        read_origin(env, "HEADWAY_PUBLIC_URL"),
        _tls(env, state_dir),
        _proxies(env.get("HEADWAY_TRUSTED_PROXIES", "")),
        _switch(env, "HEADWAY_INSECURE"),
    )
    if found.tls and found.url.startswith("http://"):
        raise Refused("HEADWAY_PUBLIC_URL is http, but the server uses TLS", hint="https://headway.example.org")
    if found.tls and found.insecure:
        raise Refused(
            "HEADWAY_INSECURE is set, but the server uses TLS",
            hint="omit --insecure, or the options of the certificate",
        )
    found.require_tls(env.get("HEADWAY_HOST") or "127.0.0.1")
    return found


def read_origin(env: Mapping[str, str], name: str) -> str:
    """Returns scheme, host and port of the URL in an environment variable; "" if it is unset. For notebooks the host
    may begin with "*.": each notebook then has its own host name. Raises Refused if it is not an origin."""
    text = env.get(name, "")
    try:
        parts = urlsplit(text)
        host = parts.netloc.removeprefix("*.") if name == "HEADWAY_NOTEBOOK_URL" else parts.netloc
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and "*" not in host
    except ValueError:
        fits = False
    if text and (not fits or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc):
        raise Refused(f"{name} is not an origin: {text[:80]!r}", hint="https://headway.example.org")
    return f"{parts.scheme}://{parts.netloc.lower()}" if text else ""


def _tls(env: Mapping[str, str], state_dir: Path) -> Tls | None:
    cert, key = env.get("HEADWAY_TLS_CERT", ""), env.get("HEADWAY_TLS_KEY", "")
    own = _switch(env, "HEADWAY_TLS_SELF_SIGNED")
    if own and (cert or key):
        raise Refused("the server has both a certificate and HEADWAY_TLS_SELF_SIGNED", hint="set one of them")
    if own:
        return own_certificate(state_dir, env.get("HEADWAY_HOST") or "127.0.0.1")
    if not cert and not key:
        return None
    if not (cert and key):
        raise Refused("a certificate without its key, or a key alone", hint=_TLS_WAYS)
    return load_certificate(Path(cert), Path(key))


def _switch(env: Mapping[str, str], name: str) -> bool:
    """Returns whether the variable is 1. Raises Refused unless it is 1, 0 or unset."""
    text = env.get(name, "")
    if text not in ("", "0", "1"):
        raise Refused(f"{name} is neither 1 nor 0: {text[:40]!r}", hint=f"{name}=1")
    return text == "1"


def _proxies(text: str) -> tuple[str, ...]:
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in found:
        try:
            ipaddress.ip_network(word)
        except ValueError:
            raise Refused(
                f"HEADWAY_TRUSTED_PROXIES has an invalid address: {word[:60]!r}",
                hint="for example 127.0.0.1,10.0.0.0/24",
            ) from None
    return found
