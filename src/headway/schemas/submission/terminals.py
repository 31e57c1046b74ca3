"""Requests for terminals on a cluster."""

from __future__ import annotations

from pydantic import Field

from headway.schemas.base import RequestModel


class TerminalSize(RequestModel):
    """Rows and columns of a terminal."""

    rows: int = Field(24, ge=1, le=500)
    columns: int = Field(80, ge=1, le=1000)


class TerminalIn(TerminalSize):
    """A terminal whose output is streamed in frames (see `schemas.submission.stream_frames`). `input` is an id that the client
    chooses and under which it will send keys and sizes."""

    input: str = Field(pattern=r"^[0-9a-f]{32}$")
    job: str = Field(
        "", pattern=r"^([1-9][0-9]{0,9}(_[0-9]{1,9})?)?$"
    )  # a shell in this running job; "": on the login node
    node: str = Field("", max_length=64)  # of the job; "": its first
    user: str = ""  # default: the person's own; of a job: the job's
