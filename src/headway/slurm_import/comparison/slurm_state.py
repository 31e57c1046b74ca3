"""What a running Slurm says of itself: the output of scontrol, sacctmgr and sshare, parsed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headway.slurm_import.accounting.sacctmgr_files import is_association_table, is_qos_table
from headway.slurm_import.importer import STATE_CONFIG, STATE_NODES, STATE_PARTITIONS, STATE_SHARES, STATE_USERS
from headway.slurm_import.values import same_value

_OWN_FILES = ("slurm.conf", "cgroup.conf", "mpi.conf")
_PAIR = re.compile(r"([A-Za-z_:]+)=(.*?)(?= +[A-Za-z_:]+=|\s*$)")
_KEY_LINE = re.compile(r"([A-Za-z]+)\s*=")
_INDEX = re.compile(r"\[[0-9]+\]$")  # SlurmctldHost[0]: the first one counts here
_UNIT = re.compile(r" (sec|min|usec|percent|nodes/min)$")


@dataclass(frozen=True)
class SlurmState:
    """A running Slurm. Names of partitions are in lower case; "" is an account's own row of `associations`.
    `own_keys`: keys of slurm.conf, cgroup.conf and mpi.conf in lower case -> the comment above them; `missing`: parts that
    could not be read -> why."""

    config: Mapping[str, str]
    partitions: Mapping[str, Mapping[str, str]]
    nodes: Mapping[str, Mapping[str, str]]
    associations: Mapping[tuple[str, str], Mapping[str, str]]  # by account and user
    qos: Mapping[str, Mapping[str, str]]
    shares: Mapping[tuple[str, str], float]  # by account and user: its part of the parent
    parts: Mapping[str, float]  # by account: its part of the cluster
    uids: Mapping[str, str] = field(default_factory=dict)
    own_keys: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Slurm's version, such as "24.11.5"."""
        return self.config.get("SLURM_VERSION", "")

    def parent(self, account: str) -> str:
        """Returns the account above an account; "root" at the top."""
        row = self.associations.get((account, ""), {})
        return row.get("ParentName", "") or row.get("Par Name", "") or "root"

    def accounts_below(self, accounts: Iterable[str]) -> set[str]:
        """Returns the accounts with all below them."""
        found, more = set[str](), set(accounts)
        while more:
            found |= more
            more = {name for name, user in self.associations if not user and self.parent(name) in more} - found
        return found


def read_state(texts: Mapping[str, str], unread: Mapping[str, str]) -> SlurmState:
    """Returns the state in these files. `unread`: why files could not be read."""
    named = {posixpath.basename(path): text for path, text in texts.items()}
    associations = next((text for text in texts.values() if is_association_table(text)), "")
    qos = next((text for text in texts.values() if is_qos_table(text)), "")
    found = {
        **{name: named.get(name, "") for name in (STATE_CONFIG, STATE_PARTITIONS, STATE_NODES, STATE_SHARES)},
        "sacctmgr-assoc.txt": associations,
        "sacctmgr-qos.txt": qos,
    }
    shares, parts = _shares(found[STATE_SHARES])
    rows = _table(associations)
    return SlurmState(
        config=_config(found[STATE_CONFIG]),
        partitions={name.lower(): pairs for name, pairs in _records(found[STATE_PARTITIONS], "PartitionName").items()},
        nodes=_records(found[STATE_NODES], "NodeName"),
        associations={(row["Account"], row["User"]): row for row in rows if not row.get("Partition")},
        qos={row["Name"]: row for row in _table(qos)},
        shares=shares,
        parts=parts,
        uids=_uids(named),
        own_keys={key: why for name in _OWN_FILES for key, why in _own_keys(named.get(name, "")).items()},
        missing={name: unread.get(name, "the file is not there") for name, text in found.items() if not text.strip()},
    )


def _config(text: str) -> dict[str, str]:
    """Returns `scontrol show config` without units."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {
        _INDEX.sub("", key.strip()): _UNIT.sub("", value.strip()) for key, mark, value in reversed([*pairs]) if mark
    }


def _records(text: str, first: str) -> dict[str, dict[str, str]]:
    """Returns the records of `scontrol -o show ...` by the value of their first key."""
    found = {}
    for line in text.splitlines():
        pairs = {key: value.strip() for key, value in _PAIR.findall(line)}
        if first in pairs:
            found[pairs[first]] = pairs
    return found


def _table(text: str) -> list[dict[str, str]]:
    """Returns the rows of a table of `sacctmgr -P`."""
    names, *rows = [line.rstrip("\r").split("|") for line in text.splitlines() if "|" in line] or [[]]
    return [dict(zip(names, row, strict=False)) for row in rows]


def _shares(text: str) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """Returns the parts of accounts and users of their parents, and of accounts of the cluster, from `sshare -nP -a -o
    account,user,normshares`. Accounts are indented by their place in the tree."""
    shares: dict[tuple[str, str], float] = {}
    parts: dict[str, float] = {}
    above = [1.0]
    for line in text.splitlines():
        account, user, part, *_ = [*line.split("|"), "", ""]
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", part):
            continue
        name = account.strip()
        shares[name, user] = float(part)
        if not user and name != "root":
            depth = min(max(1, len(account) - len(account.lstrip())), len(above))
            parts[name] = above[depth - 1] * float(part)
            above = [*above[:depth], parts[name]]
    return shares, parts


def _uids(named: Mapping[str, str]) -> dict[str, str]:
    """Returns the uids of users.txt (NAME:UID), or of a passwd file."""
    lines = named.get(STATE_USERS, "") or re.sub(r"(?m)^([^:\n]*):[^:\n]*:", r"\1:", named.get("passwd", ""))
    rows = (line.split(":") for line in lines.splitlines())
    return {row[0]: row[1] for row in rows if len(row) > 1 and row[1].isdecimal()}


def _own_keys(text: str) -> dict[str, str]:
    """Returns the keys of a file that Headway wrote, with the comment directly above each."""
    found: dict[str, str] = {}
    comment = ""
    for line in text.splitlines():
        key = _KEY_LINE.match(line)
        if key is not None:
            found[key[1].lower()] = comment
        comment = line.removeprefix("#").strip() if line.startswith("# ") and not line.startswith("# ---") else ""
    return found


def equal(one: str, other: str) -> bool:
    """Returns whether two values that Slurm prints mean the same."""
    return same_value(_plain(one), _plain(other))


def _plain(text: str) -> str:
    return "" if text.endswith("/none") or text.startswith("(null") else text


def names(found: Iterable[str]) -> str:
    """Returns names in order, separated by commas."""
    return ",".join(sorted(found))
