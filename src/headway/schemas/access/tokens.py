"""Requests and answers about API tokens and sign-in links."""

from __future__ import annotations

from pydantic import Field

from headway.domain.access.role import Role
from headway.domain.access.token_lifetime import DEFAULT_TOKEN_DAYS, MAX_TOKEN_DAYS
from headway.domain.access.token_scope import TokenScope
from headway.schemas.base import RequestModel, ResponseModel


class TokenIn(RequestModel):
    """A request for a new access token. `days` is how long it is valid; null: without end."""

    person: str = ""  # "" is the person of the request; only admins may name another
    role: Role | None = None
    label: str = Field("", max_length=200)
    days: int | None = Field(DEFAULT_TOKEN_DAYS, ge=1, le=MAX_TOKEN_DAYS)
    scopes: list[TokenScope] = Field([TokenScope.ALL], min_length=1, max_length=6)
    cluster: str = Field("", max_length=64)  # the only cluster that the token is valid for; "" is every cluster


class TokenOut(ResponseModel):
    """An access token."""

    id: str
    person: str
    role: str
    label: str
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    scopes: list[str] = ["all"]
    cluster: str = ""
    token: str | None = None  # only in the response that creates it


class SignInLinkOut(ResponseModel):
    """A link that signs a browser in once. `expires_at` is in unix seconds."""

    url: str
    expires_at: float
