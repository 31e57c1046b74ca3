"""Reads the server's addresses, TLS files and reverse proxies from environment variables.

HEADWAY_PUBLIC_URL       how people reach it, if not by HEADWAY_HOST and port: https://headway.example.org
HEADWAY_TLS_CERT         a PEM file: the certificate, then its intermediate certificates; with HEADWAY_TLS_KEY the server
HEADWAY_TLS_KEY          itself uses TLS, on the notebook port too
HEADWAY_TRUSTED_PROXIES  addresses or networks of reverse proxies, separated by ",": only their X-Forwarded headers are
                         trusted
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from headway.errors import Refused

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True)
class Tls:
    """A certificate that was loaded and matches its key."""

    cert: Path
    key: Path
    context: ssl.SSLContext
    names: tuple[str, ...]  # host names and addresses that it is valid for

    @property
    def name(self) -> str:
        """Returns the first name that is not a wildcard, or ""."""
        return next((name for name in self.names if not name.startswith("*")), "")


@dataclass(frozen=True)
class ListenSettings:
    """Settings of how the server is reached."""

    url: str = ""  # how people reach the server; "" = by its own address
    tls: Tls | None = None
    proxies: tuple[str, ...] = ()

    def hosts(self, host: str) -> tuple[str, ...]:
        """Returns the host names that requests may be addressed to; () = any."""
        names = {"127.0.0.1", "localhost", "[::1]"}
        if self.url:
            names.add(_bracketed(urlsplit(self.url).hostname or ""))
        if self.tls:
            names.update(self.tls.names)
        if any(name.startswith("*") for name in names) or not (host in LOOPBACK or self.url or self.tls):
            return ()
        return tuple(sorted(names))


DEFAULT_LISTEN_SETTINGS = ListenSettings()


def read_listen_settings(env: Mapping[str, str]) -> ListenSettings:
    """Returns the settings from environment variables. Raises Refused for invalid ones."""
    found = ListenSettings(
        read_origin(env, "HEADWAY_PUBLIC_URL"), _tls(env), _proxies(env.get("HEADWAY_TRUSTED_PROXIES", ""))
    )
    if found.tls and found.url.startswith("http://"):
        raise Refused("HEADWAY_PUBLIC_URL is http, but the server uses TLS", hint="https://headway.example.org")
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


def _tls(env: Mapping[str, str]) -> Tls | None:
    cert, key = env.get("HEADWAY_TLS_CERT", ""), env.get("HEADWAY_TLS_KEY", "")
    if not cert and not key:
        return None
    if not (cert and key):
        raise Refused("a certificate without its key, or a key alone", hint="--tls-cert FILE --tls-key FILE")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=lambda: "")
        names = _names(Path(cert).read_bytes())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else str(error)
        raise Refused(
            f"the certificate {cert} with the key {key} can't be used: {why}",
            hint="give PEM files, with the key without a password",
        ) from None
    return Tls(Path(cert), Path(key), context, names)


def _names(pem: bytes) -> tuple[str, ...]:
    """Returns the host names and addresses that the first certificate of the file is valid for. Raises ValueError."""
    from cryptography import x509

    found = x509.load_pem_x509_certificates(pem)[0]
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise ValueError("it has no host name (no subjectAltName)") from None
    hosts = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    return (*hosts, *(_bracketed(str(address)) for address in names.get_values_for_type(x509.IPAddress)))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


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
