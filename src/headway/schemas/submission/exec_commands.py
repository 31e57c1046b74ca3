"""Requests and answers about commands that run on the login machine, and about terminals."""

from __future__ import annotations

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.submission.job_field_types import Words


class ExecIn(RequestModel):
    """A command to run on the login node. `stdin_b64` is its standard input in base64."""

    argv: Words = Field(min_length=1)
    user: str = ""  # default: root for admins, otherwise the person's own user
    stdin_b64: str = ""


class CommandIn(RequestModel):
    """A command whose output is streamed in frames (see `schemas.submission.stream_frames`). `input` is an id that the client
    chooses and under which it will post standard input; "" means no input."""

    argv: Words = Field(min_length=1)
    user: str = ""  # default: root for admins, otherwise the person's own user
    input: str = Field("", pattern=r"^([0-9a-f]{32})?$")


class ExecOut(ResponseModel):
    """Result of a command. Output is base64 of the unchanged bytes."""

    code: int
    stdout_b64: str = ""
    stderr_b64: str = ""


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
