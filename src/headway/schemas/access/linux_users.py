"""Models of the Linux users of a cluster."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class LinuxUserOut(ResponseModel):
    """A Linux user of a cluster. The first team is the account of their jobs, unless they name another."""

    name: str
    teams: list[str]
    leads: list[str] = []
    admin: bool = False
