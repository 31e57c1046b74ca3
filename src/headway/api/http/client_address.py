"""The address of the client that sent a request. It limits failed sign-ins and stands in the audit trail."""

from __future__ import annotations

from fastapi import Request


def client_address(request: Request) -> str:
    """Returns the client's IP address. Behind a reverse proxy that HEADWAY_TRUSTED_PROXIES names it is the address that the
    proxy reports in X-Forwarded-For; uvicorn puts it there (`server.main`, `server.listen_settings`)."""
    return request.client.host if request.client else ""
