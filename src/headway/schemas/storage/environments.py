"""Models of software environments and their versions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from headway.domain.environment import NAME_PATTERN, NO_ENVIRONMENT
from headway.schemas.base import RequestModel, ResponseModel

MAX_TEXT = 4 * 1024 * 1024  # characters of a requirements file or lock
EnvironmentName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
EnvironmentSource = Literal["requirements.txt", "pyproject.toml", "uv.lock"]


class EnvironmentIn(RequestModel):
    """A new version of an environment. `text` is the content of a file of the kind `source`; a uv.lock needs its
    `pyproject` too. The packages are installed by a job of the person, in `partition` and on the account of `team`."""

    name: EnvironmentName
    source: EnvironmentSource = "requirements.txt"
    text: Annotated[str, Field(max_length=MAX_TEXT)]
    pyproject: Annotated[str, Field(max_length=MAX_TEXT)] = ""
    partition: Annotated[str, Field(max_length=64)] = ""
    team: Annotated[str, Field(max_length=64)] = ""
    user: str = ""  # the Linux user of the job (admins only)

    @model_validator(mode="after")
    def _sound(self) -> EnvironmentIn:
        if self.name == NO_ENVIRONMENT:
            raise ValueError(f"{NO_ENVIRONMENT!r} is not a name: it means no environment")
        if not self.text.strip():
            raise ValueError(f"{self.source} is empty")
        if (self.source == "uv.lock") != bool(self.pyproject):
            raise ValueError("pyproject belongs to a uv.lock, which needs it")
        if "\0" in self.text + self.pyproject:
            raise ValueError("the text has a NUL byte")
        return self


class EnvironmentRemoveIn(RequestModel):
    """`force`: remove the version although the lineage of jobs names it. Their lineage then says that it was removed."""

    force: bool = False


class EnvironmentOut(ResponseModel):
    """One version of a software environment."""

    name: str
    version: int
    path: str  # the same on every machine
    digest: str  # sha256 of the lock
    python: str
    packages: int
    bytes: int
    source: str
    person: str
    at: float
    job_id: int  # the job that built it
    jobs: int = 0  # number of jobs whose lineage names this version
    removable: bool = False  # in a list: neither a job's lineage nor a default names it, and there is a later version


class EnvironmentDetailOut(EnvironmentOut):
    """A version with its lock: every package with its version and hashes."""

    lock: str = ""
