"""How the client verifies the server's TLS certificate: by authorities, or by a fingerprint that was pinned."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from headway.errors import Refused, Unreachable
from headway.sdk.server_address import local_certificate
from headway.validation.tls_fingerprint import fingerprint_of

_HANDSHAKE_S = 10.0


def tls_context(url: str, pins: Collection[str] = ()) -> ssl.SSLContext | bool:
    """Returns how the certificate of the server at this address is verified: with `pins` only by these fingerprints,
    else by the system's authorities, HEADWAY_CA_FILE, and for this machine's own server its own certificate.

    Raises Refused for a pinned address without TLS, and for an unreadable HEADWAY_CA_FILE."""
    if not url.startswith("https://"):
        if pins:
            raise Refused(
                f"a certificate is pinned for the server, but {url} is without TLS", hint=f"https://{url[7:]}"
            )
        return True
    if pins:
        return _PinnedContext.of(url, pins)
    import httpx

    context = httpx.create_ssl_context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a certificate that is itself trusted needs no issuer
    named = os.environ.get("HEADWAY_CA_FILE", "")
    if named:
        try:
            context.load_verify_locations(named)
        except OSError as error:  # ssl.SSLError is one
            raise Refused(f"HEADWAY_CA_FILE can't be used: {error}", hint="a PEM file of certificates") from None
    with contextlib.suppress(OSError):
        own = local_certificate(url)
        if own:
            context.load_verify_locations(own)
    return context


class _PinnedContext(ssl.SSLContext):
    """Compares the certificate of each connection with the pinned fingerprints before a request is sent on it. Names,
    dates and authorities do not count, as with host keys of SSH."""

    url: str
    pins: frozenset[str]

    @classmethod
    def of(cls, url: str, pins: Collection[str]) -> _PinnedContext:
        """Returns a context that accepts only certificates with one of these fingerprints."""
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.url, context.pins = url, frozenset(pins)
        return context

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Returns the connection after its handshake. Raises Refused for another certificate."""
        connection = super().wrap_socket(*args, **options)
        shown = fingerprint_of(connection.getpeercert(binary_form=True) or b"")
        if shown not in self.pins:
            connection.close()
            raise Refused(
                f"the server at {self.url} shows another certificate than the pinned one: {shown} instead of "
                f"{', '.join(sorted(self.pins))}; nothing was sent to it",
                hint="another machine may answer in its place: compare with `headway server status` on the server's "
                f"machine; if the certificate was changed there: headway login {self.url} --fingerprint {shown}",
            )
        return connection

    def wrap_bio(self, *_: Any, **__: Any) -> ssl.SSLObject:
        """Raises NotImplementedError: a handshake without a socket could not be checked here."""
        raise NotImplementedError


def presented_fingerprint(url: str) -> tuple[str, str]:
    """Returns (fingerprint of the certificate that the server at this https address shows, why it can't be verified by
    authorities; "" if it can). Sends nothing else. Raises Unreachable."""
    context = tls_context(url)
    assert isinstance(context, ssl.SSLContext)
    try:
        return _shake_hands(url, context), ""
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message
    open_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    open_context.check_hostname = False
    open_context.verify_mode = ssl.CERT_NONE
    return _shake_hands(url, open_context), why


def _shake_hands(url: str, context: ssl.SSLContext) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        with (
            socket.create_connection((host, parts.port or 443), timeout=_HANDSHAKE_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            return fingerprint_of(connection.getpeercert(binary_form=True) or b"")
    except ssl.SSLCertVerificationError:
        raise
    except OSError as error:  # ssl.SSLError is one
        raise Unreachable(f"no server answers with TLS at {url}: {error}", hint="check the address") from None
