"""The section `scripts` of the cluster file: the site's own scripts, and its resolution."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from headway.domain.slurm.site_scripts import SiteScript, SiteScripts
from headway.validation.field_types import FileSection, value_error

_MOST = 20
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
# slurmctld ends if one of them is missing
_LUA_FUNCTIONS = ("slurm_job_submit", "slurm_job_modify")


class ScriptPart(FileSection):
    """A script of the site. `headway plan` and `headway apply` make it of the name of a file."""

    name: Annotated[str, Field(pattern=_NAME)] = Field(description="Its name on the machines.")
    text: str = Field(description="Its text.")


def _was_read(value: Any) -> Any:
    """Refuses the name of a file, which only the command line reads."""
    if isinstance(value, str):
        raise value_error("must have a name and a text: only headway plan and headway apply read the file")
    return value


def _begins_with_interpreter(part: ScriptPart) -> ScriptPart:
    if not part.text.startswith("#!/"):
        raise value_error("does not begin with #! and an interpreter", "for example #!/bin/sh")
    return part


def _has_functions(part: ScriptPart) -> ScriptPart:
    for name in _LUA_FUNCTIONS:
        if not re.search(rf"\b{name}\b", part.text):
            raise value_error(f"has no function {name}", "Slurm's plugin needs slurm_job_submit and slurm_job_modify")
    return part


if TYPE_CHECKING:
    Script = ScriptPart
else:
    _FILE = {"type": "string", "description": "File next to the cluster file."}
    Script = Annotated[
        ScriptPart,
        BeforeValidator(_was_read),
        WithJsonSchema({"anyOf": [_FILE, ScriptPart.model_json_schema()]}),
    ]


class ScriptsPart(FileSection):
    """The site's own scripts, which run in addition to Headway's. No secret belongs in them: members of the cluster can
    read them."""

    prolog: list[Script] = Field(
        default_factory=list,
        max_length=_MOST,
        description="Scripts that run as root on each node of a job before it starts, in this order, after Headway's prolog. "
        "If one fails, the job runs elsewhere and the node is drained.",
        examples=[["prolog.d/10-mounts.sh"]],
    )
    epilog: list[Script] = Field(
        default_factory=list,
        max_length=_MOST,
        description="Scripts that run as root on each node of a job when it has ended, in this order, after Headway's epilog. "
        "If one fails, the node is drained.",
        examples=[["epilog.sh"]],
    )
    job_submit: Script | None = Field(
        None,
        description="job_submit.lua, by which slurmctld checks and changes jobs at submission.",
        examples=["job_submit.lua"],
    )

    @model_validator(mode="after")
    def _fit(self) -> ScriptsPart:
        for part in (*self.prolog, *self.epilog):
            _begins_with_interpreter(part)
        if self.job_submit is not None:
            _has_functions(self.job_submit)
        for kind, parts in (("prolog", self.prolog), ("epilog", self.epilog)):
            names = [part.name for part in parts]
            twice = next((name for name in names if names.count(name) > 1), "")
            if twice:
                raise value_error(f"{kind} has two scripts named {twice}", "give each a name of its own")
        return self


def resolve_scripts(part: ScriptsPart) -> SiteScripts:
    """Returns the section `scripts`."""
    prolog, epilog = (tuple(SiteScript.of(one.name, one.text) for one in parts) for parts in (part.prolog, part.epilog))
    lua = part.job_submit
    return SiteScripts(prolog, epilog, SiteScript.of(lua.name, lua.text) if lua else None)
