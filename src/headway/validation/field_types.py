"""Field types of the cluster file: checked strings, times, keys, and the strict base model `FileSection`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from headway.validation import reserved_names, ssh_keys, syntax_rules, times_and_sizes, volume_mount

MOST_NODES = 20_000
MOST_TEAMS = 1000
MOST_USERS = 20_000  # of a team, and of the file


def value_error(text: str, hint: str = "") -> PydanticCustomError:
    """Returns an error whose message is shown unchanged."""
    return PydanticCustomError("headway", "{text}", {"text": text, "hint": hint})


def checked_by(check: Callable[[str], str], hint: str = "") -> AfterValidator:
    """Returns a validator from a check that returns a problem, or "" for a valid value."""

    def validate(value: str) -> str:
        problem = check(value)
        if problem:
            raise value_error(problem, hint)
        return value

    return AfterValidator(validate)


def _reserved(check: Callable[[str], str], reserved: frozenset[str]) -> Callable[[str], str]:
    return lambda name: check(name) or (f"{name} is a reserved word of Slurm" if name in reserved else "")


def _time(value: Any) -> int | None:
    """Returns the seconds of a time in Slurm's forms; -1 means unlimited, so that None can mean that no time was given."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise value_error("must be a time", 'for example "2-00:00:00" (days-hours:minutes:seconds), or minutes')
    try:
        seconds = times_and_sizes.parse_time(value)
    except ValueError as error:
        raise value_error(str(error), 'for example "7-00:00:00", "02:00:00", 90 (minutes) or infinite') from None
    return UNLIMITED if seconds is None else seconds


def _size(value: Any) -> int:
    """Returns the bytes of a size."""
    try:
        return times_and_sizes.parse_size(value if isinstance(value, str) else "")
    except ValueError as error:
        raise value_error(str(error), "for example 100 GiB or 1.5 TiB") from None


def _grace(value: Any) -> Any:
    """Returns a grace time: a number of seconds as in Slurm's GraceTime, or a text with colons."""
    return _time(value) if isinstance(value, str) and ":" in value else value


def _slurm_value(value: Any) -> str:
    # headway.clusterfile.rules.slurm_key_rules checks the value, because its form depends on the key and the Slurm version.
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if not isinstance(value, str | int):
        raise value_error("must be text or a whole number")
    return str(value)


def host_from_text(value: Any) -> Any:
    """Returns the mapping of a host that was given as a plain address."""
    return {"address": value} if isinstance(value, str) else value


def one_or_two(value: Any) -> Any:
    """Returns the value if it is exactly the type int. Without this check, Python would accept True as 1 and 2.0 as 2."""
    if type(value) is not int:
        raise value_error("must be 1 or 2")
    return value


def _public_key(value: str) -> str:
    problem, hint = ssh_keys.key_fault(value)
    if problem:
        raise value_error(problem, hint)
    return ssh_keys.one_line(value)


def _xid(value: Any) -> Any:
    """Returns a code as text: it is a number in YAML, and text after a JSON round trip."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _uid(value: int) -> int:
    if value == NOBODY:
        raise value_error("is the uid of nobody")
    return value


def checked_mount_line(value: str) -> str:
    """Returns the line if it is valid, else raises a value error."""
    problem, hint = volume_mount.mount_line_fault(value)
    if problem:
        raise value_error(problem, hint)
    return value


FIRST_UID_OF_PEOPLE, LAST_UID_OF_PEOPLE, NOBODY = 1000, 2**31 - 1, 65534
UNLIMITED = -1
_TIME_SCHEMA = {
    "anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}],
    "examples": ["7-00:00:00", "02:00:00", 90, "infinite"],
}

ClusterName = Annotated[
    str,
    checked_by(syntax_rules.cluster_name_fault),
    WithJsonSchema({"type": "string", "pattern": f"^{syntax_rules.CLUSTER_NAME}$"}),
]
Name = Annotated[
    str, checked_by(syntax_rules.name_fault), WithJsonSchema({"type": "string", "pattern": f"^{syntax_rules.NAME}$"})
]
PartitionName = Annotated[
    str,
    checked_by(_reserved(syntax_rules.name_fault, reserved_names.RESERVED_PARTITIONS)),
    WithJsonSchema({"type": "string", "pattern": f"^{syntax_rules.NAME}$"}),
]
TeamName = Annotated[
    str,
    checked_by(_reserved(syntax_rules.name_fault, reserved_names.RESERVED_TEAMS)),
    WithJsonSchema({"type": "string", "pattern": f"^{syntax_rules.NAME}$"}),
]
GroupName = Annotated[
    str,
    checked_by(syntax_rules.group_name_fault),
    WithJsonSchema({"type": "string", "pattern": f"^{syntax_rules.GROUP_NAME}$"}),
]
UserName = Annotated[
    str,
    checked_by(syntax_rules.user_name_fault),
    WithJsonSchema({"type": "string", "pattern": f"^{syntax_rules.USER_NAME}$"}),
]
Size = Annotated[int, BeforeValidator(_size), WithJsonSchema({"type": "string"})]
Seconds = Annotated[int, BeforeValidator(_time), WithJsonSchema(_TIME_SCHEMA)]
GraceSeconds = Annotated[int, Field(ge=0, le=86400), BeforeValidator(_grace)]
Uid = Annotated[int, Field(ge=FIRST_UID_OF_PEOPLE, le=LAST_UID_OF_PEOPLE), AfterValidator(_uid)]
PublicKey = Annotated[str, AfterValidator(_public_key)]
XidCode = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}$"), BeforeValidator(_xid)]
XidClass = Literal[
    "app", "consequence", "log", "watch", "restart_job", "reset", "drain", "reboot", "rma", "hands_on", "verdict"
]
SharedBy = Annotated[
    str,
    checked_by(syntax_rules.shared_by_fault),
    WithJsonSchema({"type": "string", "pattern": f"^(?:use|share|centre:{syntax_rules.NAME})$"}),
]
SHARED_BY = "use (teams by usage), share (teams by shares) or centre:NAME (one cost centre, no team)."
SlurmKeys = dict[str, Annotated[str, BeforeValidator(_slurm_value), WithJsonSchema({"type": ["string", "integer"]})]]


class FileSection(BaseModel):
    """Base of all parts of the file: strict, and without unknown fields. A known field with an empty value counts as
    left out. An unknown field with an empty value is an error: in `{mount: nfs4 filer:/x hard,ro}` the comma ends
    the value, and `ro` would be such a field."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)
    # Fields that people look for here and that belong elsewhere, with the hint of the error.
    elsewhere: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _left_empty(cls, value: Any) -> Any:
        if value is None:
            return {}
        if isinstance(value, dict) and None in value.values():
            return {key: item for key, item in value.items() if item is not None or key not in cls.model_fields}
        return value
