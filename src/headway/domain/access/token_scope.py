"""The scopes of access tokens. What each permits is in `services.access.role_rights`."""

from __future__ import annotations

from enum import StrEnum


class TokenScope(StrEnum):
    """What a token is for."""

    ALL = "all"
    READ = "read"
    PLAN = "plan"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMIN = "admin"
    SCIM = "scim"
