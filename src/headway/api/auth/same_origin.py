"""The protection against CSRF: a request with a session cookie may change something only if a page of this server sent it,
which the cookie does not show. Tokens need no such check."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import Request

from headway.errors import NotAllowed


def require_same_origin(request: Request, own_url: str) -> None:
    """Raises NotAllowed unless the request comes from a page of this server, whose address is `own_url`."""
    origin = request.headers.get("origin", "")
    if origin and origin == own_url:
        return
    origin_host = urlsplit(origin).netloc
    if origin_host and origin_host == request.headers.get("host", "") and origin_host != urlsplit(own_url).netloc:
        return  # the page was opened by another name of this server: localhost, or an IP address
    raise NotAllowed("the request comes from another site's page", hint="use the page of this server, or a token")
