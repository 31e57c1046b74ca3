"""Request model of key rotation."""

from __future__ import annotations

from typing import Literal

from headway.schemas.base import RequestModel


class RotateIn(RequestModel):
    """The key to replace by a new one."""

    what: Literal["munge", "jwt", "ssh", "database"]
