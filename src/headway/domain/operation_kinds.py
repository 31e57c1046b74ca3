"""The kinds of operation, each declared once: its parameters, its texts and its effect on a cluster.
server/operations/registry.py names the code that carries each kind out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar, Literal, Self


class OperationKind(StrEnum):
    """The kinds of operation; their properties are in _TRAITS."""

    APPLY = "apply"
    SCALE = "scale"
    DOWN = "down"
    BACKUP = "backup"
    RESTORE = "restore"
    ROTATE = "rotate"
    DATASET = "dataset"
    ENVIRONMENT = "environment"
    ROLL = "roll"
    REPLACE = "replace"
    FABRIC_TEST = "fabric test"
    WHATIF = "what-if"

    @property
    def heading(self) -> str:
        """Returns the text before the cluster's name in the title of the operation's page."""
        return _TRAITS[self].heading

    @property
    def activity(self) -> str:
        """Returns a noun phrase for the list of events of a cluster."""
        return _TRAITS[self].activity

    def success(self, cluster: str) -> str:
        """Returns the sentence that says that the operation succeeded."""
        return _TRAITS[self].success.format(cluster)

    def audit_action(self, params: Mapping[str, Any]) -> str:
        """Returns the action of the operation's line in the audit trail."""
        if self in (OperationKind.DATASET, OperationKind.ENVIRONMENT):
            return f"{self}.{params.get('action')}"
        return _TRAITS[self].audit_action or self

    @property
    def secret_prefix(self) -> str:
        """Prefix of the name of the operation's own secret, which is kept until the operation has ended; "" for a kind
        without one. The parameter `ref` is the rest of the name."""
        return _TRAITS[self].secret_prefix

    @property
    def changes_cluster(self) -> bool:
        """Returns whether the cluster may differ during or after the operation from before."""
        return _TRAITS[self].changes_cluster

    @property
    def invalidates_connections(self) -> bool:
        """Returns whether open connections may, after the operation, lead to machines or use keys that no longer exist."""
        return _TRAITS[self].invalidates_connections

    @property
    def may_continue(self) -> bool:
        """Returns whether the operation may end early for another one and continue as a new operation, whose id it then
        returns."""
        return _TRAITS[self].may_continue


@dataclass(frozen=True, slots=True)
class _Traits:
    heading: str
    activity: str
    success: str
    audit_action: str = ""  # "" = the kind itself
    secret_prefix: str = ""
    changes_cluster: bool = True
    invalidates_connections: bool = False
    may_continue: bool = False


_TRAITS = {
    OperationKind.APPLY: _Traits("Apply", "apply", "{} is ready", may_continue=True),
    OperationKind.SCALE: _Traits("Scale", "scaling", "{} is scaled", may_continue=True),
    OperationKind.DOWN: _Traits("Take down", "taking the cluster down", "{} is down", invalidates_connections=True),
    OperationKind.BACKUP: _Traits(
        "Back up",
        "backup",
        "the backup of {} is complete",
        secret_prefix="backup_key/",  # noqa: S106  (a name, no password)
        changes_cluster=False,
    ),
    OperationKind.RESTORE: _Traits(
        "Restore",
        "restore from a backup",
        "{} is restored",
        secret_prefix="backup_key/",  # noqa: S106  (a name, no password)
        invalidates_connections=True,
    ),
    OperationKind.ROTATE: _Traits(
        "New key for",
        "key rotation",
        "the key of {} is replaced",
        audit_action="keys.rotate",
        secret_prefix="rotating/",  # noqa: S106  (a name, no password)
        invalidates_connections=True,
    ),
    OperationKind.DATASET: _Traits(
        "Dataset of",
        "dataset",
        "the dataset of {} is complete",
        secret_prefix="s3_access/",  # noqa: S106  (a name, no password)
        changes_cluster=False,
    ),
    OperationKind.ENVIRONMENT: _Traits(
        "Environment of",
        "software environment",
        "the environment of {} is complete",
        changes_cluster=False,
    ),
    OperationKind.ROLL: _Traits(
        "Roll",
        "node image rollout",
        "the roll of {} has ended",
        changes_cluster=False,
        invalidates_connections=True,
        may_continue=True,
    ),
    OperationKind.REPLACE: _Traits(
        "Another machine of",
        "machine replacement",
        "the node of {} is rebuilt",
        changes_cluster=False,
        invalidates_connections=True,
    ),
    OperationKind.FABRIC_TEST: _Traits(
        "Fabric test of",
        "fabric test",
        "the fabric of {} is measured",
        audit_action="fabric.test",
        changes_cluster=False,
    ),
    OperationKind.WHATIF: _Traits(
        "What-if of",
        "what-if",
        "the queue of {} is replayed",
        audit_action="whatif",
        changes_cluster=False,
    ),
}
SECRET_PREFIXES = tuple(sorted({kind.secret_prefix for kind in OperationKind} - {""}))


@dataclass(frozen=True)
class OperationParams:
    """Base of the parameters of each kind. The store keeps them as JSON (`to_json`). `from_json` ignores unknown keys,
    which a newer server may have written."""

    kind: ClassVar[OperationKind]

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Returns the parameters from stored JSON."""
        names = {spec.name for spec in fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in names})

    @property
    def subject(self) -> str:
        """What the operation works on: operations on one subject of a cluster run one after another. "" is the whole
        cluster."""
        return ""

    def to_json(self) -> dict[str, Any]:
        """Returns the fields that are not None."""
        return {spec.name: value for spec in fields(self) if (value := getattr(self, spec.name)) is not None}


@dataclass(frozen=True)
class ApplyParams(OperationParams):
    """Parameters of an apply, and of a scale, which applies the cluster file with other numbers of nodes.

    `scale`: group -> number of nodes; None for an apply. An operation that continues an earlier one has `instead`, the
    operations that may have made it superfluous, and `until`, the deadline (unix seconds) of the `nodes` to remove."""

    kind: ClassVar[OperationKind] = OperationKind.APPLY
    confirmed: bool = False
    look_again: bool = False  # the plan is checked again when the operation starts
    deadline_s: float | None = None  # seconds from the operation's start during which jobs on removed nodes may run
    scale: Mapping[str, int] | None = None
    instead: list[str] | None = None
    until: float | None = None
    nodes: list[str] | None = None

    @property
    def continues(self) -> bool:
        """Returns whether it continues an earlier operation that ended early for another one."""
        return self.instead is not None


@dataclass(frozen=True)
class ScaleParams(ApplyParams):
    """Parameters of a scale."""

    kind: ClassVar[OperationKind] = OperationKind.SCALE
    scale: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DownParams(OperationParams):
    """Parameters of a down. `delete_data`: the data of the cluster is deleted too."""

    kind: ClassVar[OperationKind] = OperationKind.DOWN
    delete_data: bool = False


@dataclass(frozen=True)
class BackupParams(OperationParams):
    """Parameters of a backup. `header`: the fields of backup.archive.Header. `keep`: number of backups of the cluster
    that stay in the folder `to`; 0 = all."""

    kind: ClassVar[OperationKind] = OperationKind.BACKUP
    to: str
    ref: str
    header: Mapping[str, Any]
    keep: int = 0


@dataclass(frozen=True)
class RestoreParams(OperationParams):
    """Parameters of a restore. `path`: the backup."""

    kind: ClassVar[OperationKind] = OperationKind.RESTORE
    path: str
    ref: str


@dataclass(frozen=True)
class RotateParams(OperationParams):
    """Parameters of a key rotation. `what`: the key to replace, as in schemas.key_rotation.RotateIn."""

    kind: ClassVar[OperationKind] = OperationKind.ROTATE
    what: str
    ref: str


@dataclass(frozen=True)
class DatasetParams(OperationParams):
    """Parameters of a dataset operation. `source`, `endpoint_url` and `ref` are for "add", `version` and `force` for
    "verify" and "remove"."""

    kind: ClassVar[OperationKind] = OperationKind.DATASET
    action: Literal["add", "verify", "remove"]
    name: str
    source: str | None = None
    endpoint_url: str | None = None
    ref: str | None = None
    version: int | None = None
    force: bool | None = None


@dataclass(frozen=True)
class EnvironmentParams(OperationParams):
    """Parameters of an environment operation. `source` (a file name), `text`, `pyproject` (next to a uv.lock), `user`,
    `partition` and `team` are for "add"; `version` and `force` for "remove"."""

    kind: ClassVar[OperationKind] = OperationKind.ENVIRONMENT
    action: Literal["add", "remove"]
    name: str
    source: str | None = None
    text: str | None = None
    pyproject: str | None = None
    user: str | None = None
    partition: str | None = None
    team: str | None = None
    version: int | None = None
    force: bool | None = None

    @property
    def subject(self) -> str:
        """The environment: a build does not delay an apply, nor the build of another environment."""
        return f"environment {self.name}"


@dataclass(frozen=True)
class RollParams(OperationParams):
    """Parameters of a roll. `until`: unix seconds from which nodes are replaced even while jobs run on them; None =
    each node waits for its jobs."""

    kind: ClassVar[OperationKind] = OperationKind.ROLL
    back: bool = False
    head: bool = False
    stop: bool = False
    until: float | None = None


@dataclass(frozen=True)
class ReplaceParams(OperationParams):
    """Parameters of the replacement of one node by a new machine."""

    kind: ClassVar[OperationKind] = OperationKind.REPLACE
    node: str


@dataclass(frozen=True)
class FabricTestParams(OperationParams):
    """Parameters of a fabric test. `nodes`: the nodes to measure; () = all idle ones. `scheduled`: the cluster file's
    schedule requested it."""

    kind: ClassVar[OperationKind] = OperationKind.FABRIC_TEST
    nodes: Sequence[str] = ()
    scheduled: bool = False


@dataclass(frozen=True)
class WhatIfParams(OperationParams):
    """Parameters of a what-if, as in schemas.whatif.WhatIfIn."""

    kind: ClassVar[OperationKind] = OperationKind.WHATIF
    nodes: Sequence[str] = ()
    caps: Sequence[str] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    since: str = "now-1days"
    until: str = "now"

    @property
    def subject(self) -> str:
        """What-ifs of a cluster: they change nothing, and delay no apply."""
        return "what-if"


def own_secret(kind: str, params: Mapping[str, Any]) -> str:
    """Returns the name of an operation's own secret; "" if it has none."""
    prefix = OperationKind(kind).secret_prefix
    return f"{prefix}{params['ref']}" if prefix and "ref" in params else ""
