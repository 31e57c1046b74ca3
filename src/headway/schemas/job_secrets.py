"""Requests and answers about secrets of jobs. Values only come in: no answer has one."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from headway.domain.access.job_secret_limits import value_fault
from headway.schemas.base import RequestModel, ResponseModel


def _sound(value: str) -> str:
    if fault := value_fault(value):
        raise ValueError(fault)
    return value


class SecretIn(RequestModel):
    """The value of a secret. It belongs to the person's own user, to `team`, or to `user` (admins only)."""

    value: Annotated[str, AfterValidator(_sound)] = Field(repr=False)
    team: str = Field("", max_length=64)
    user: str = Field("", max_length=64)


class SecretOut(ResponseModel):
    """A stored secret, without its value. It has a `user` or a `team`."""

    name: str
    user: str = ""
    team: str = ""
    person: str  # who set it
    at: float


class SecretChangedOut(SecretOut):
    """A secret that was set or removed."""

    undelivered: list[str] = []  # heads that can't be reached now; they get the change when they can
