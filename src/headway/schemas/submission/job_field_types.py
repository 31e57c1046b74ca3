"""Types of values in requests about jobs: words, scripts, datasets, git states."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from headway.domain.access.job_secret_limits import MOST_PER_JOB, NAME_PATTERN
from headway.schemas.base import RequestModel

SecretName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
SecretNames = Annotated[list[SecretName], Field(max_length=MOST_PER_JOB)]
StageIn = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}(@[1-9][0-9]{0,8})?$")
]  # NAME@VERSION, or NAME for the latest version
# NAME@VERSION, NAME for the latest version, "none" for the node's own Python, "" for the default
Environment = Annotated[str, Field(pattern=r"^([a-z][a-z0-9_-]{0,30}(@[1-9][0-9]{0,8})?)?$")]
# Limits of Linux for a program's arguments: the length of one, and a bound on their number.
Word = Annotated[str, Field(max_length=128 * 1024)]
Words = Annotated[list[Word], Field(max_length=100_000)]
Flags = Annotated[list[Word], Field(max_length=10_000)]  # sbatch flags; each is parsed
_MOST_SAID = 256 * 1024  # characters of a script's #SBATCH lines


def _script(text: str) -> str:
    if sum(len(line) for line in text.split("\n") if line.startswith("#SBATCH")) > _MOST_SAID:
        raise ValueError(f"its #SBATCH lines have more than {_MOST_SAID // 1024} KiB")
    return text


Script = Annotated[str, AfterValidator(_script)]


class GitIn(RequestModel):
    """The git state that the files come from."""

    commit: str = Field(default="", max_length=64)
    branch: str = Field(default="", max_length=200)
    dirty: bool = False  # the files differ from the commit
