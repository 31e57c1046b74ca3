"""Reads accounts, users and QOS of a site: files of `sacctmgr dump` and tables of `sacctmgr -P show qos`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headway.slurm_import.conf_reader import logical_lines
from headway.slurm_import.values import whole_number
from headway.slurm_import.verdicts import Item, Ledger

ROOT = "root"
_DUMP_LINE = re.compile(r"^\s*(Cluster|Parent|Account|User)\s*-\s*(.*)$", re.IGNORECASE)
# A type of GPUs has a colon: GrpTRES=gres/gpu:a100=4:GrpJobs=2
_OPTION = re.compile(r"""([A-Za-z]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|"([^"]*)"|((?:gres/[A-Za-z0-9_]+:[^=:,]+=|[^:])*))""")
_DUMP_START = re.compile(r"^\s*Cluster\s*-\s*['\"]?\w", re.IGNORECASE | re.MULTILINE)
_ASSOC_START = re.compile(r"^Cluster\|Account\|User\|", re.IGNORECASE)
# Columns of `sacctmgr -P show assoc` that sacctmgr dump names differently, without blanks and in lower case
_COLUMNS = {"share": "Fairshare", "defqos": "DefaultQOS", "grpsubmit": "GrpSubmitJobs", "maxsubmit": "MaxSubmitJobs"}
_HEADS = ("cluster", "account", "user")
_QOS_START = re.compile(r"^Name\|(?=.*\bPriority\|)(?=.*\bFlags\|)", re.IGNORECASE)


@dataclass(frozen=True)
class SiteQos:
    """A QOS: its items by name in lower case."""

    name: str
    keys: Mapping[str, Item]

    def value(self, name: str) -> str:
        """Returns the value of a key; "" without it."""
        return self.keys[name].value if name in self.keys else ""


@dataclass(frozen=True)
class Association:
    """An account ("user" is empty) or a user of an account, with its options by name in lower case."""

    account: str
    parent: str
    user: str
    head: Item
    keys: Mapping[str, Item]

    def value(self, name: str) -> str:
        """Returns an option; "" without it."""
        return self.keys[name].value if name in self.keys else ""

    @property
    def share(self) -> int:
        """Fair share; 1 if there is none, or where the parent's counts."""
        return max(1, whole_number(self.value("fairshare")) or 1)


@dataclass
class Accounting:
    """What sacctmgr knows of a site."""

    cluster: list[Item] = field(default_factory=list)  # of the line of the cluster and of its root account
    accounts: dict[str, Association] = field(default_factory=dict)
    users: list[Association] = field(default_factory=list)
    qos: dict[str, SiteQos] = field(default_factory=dict)  # by name in lower case
    parents: list[tuple[Item, str]] = field(default_factory=list)  # lines that only name the parent of those below


def is_dump(text: str) -> bool:
    """Returns whether a text is a file of `sacctmgr dump`."""
    return _DUMP_START.search(text[:20_000]) is not None


def is_qos_table(text: str) -> bool:
    """Returns whether a text is the output of `sacctmgr -P show qos`."""
    return _QOS_START.match(text) is not None


def is_association_table(text: str) -> bool:
    """Returns whether a text is the output of `sacctmgr -P show assoc`."""
    return _ASSOC_START.match(text) is not None


def read_associations(path: str, text: str, ledger: Ledger, into: Accounting) -> None:
    """Adds the accounts and users of a table with a line of names and a line for each association, in columns separated
    by "|". It has neither coordinators nor default accounts."""
    rows = [(number, line.rstrip("\r").split("|")) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    (_, names), *values = rows
    columns = [re.sub(r"\s", "", name) for name in names]
    columns = [_COLUMNS.get(column.lower(), column) for column in columns]
    for number, cells in values:
        row = {column: cell.strip() for column, cell in zip(columns, cells, strict=False) if column and cell.strip()}
        named = {column.lower(): cell for column, cell in row.items()}
        record = _record(named.get("account", ""), named.get("user", ""))
        keys = {
            column.lower(): ledger.read(Item(path, number, column, cell, "" if column.lower() in _HEADS else record))
            for column, cell in row.items()
        }
        cluster, account, user = keys.pop("cluster", None), keys.pop("account", None), keys.pop("user", None)
        parent = keys.pop("parname", None) or keys.pop("parentname", None)
        into.cluster += [cluster] if cluster is not None else []
        if account is None:
            into.cluster += [item for item in (user, parent, *keys.values()) if item is not None]
            continue
        if parent is not None:
            into.parents.append((parent, parent.value))
        above = parent.value if parent is not None else ROOT
        if user is None:
            into.accounts[account.value] = Association(account.value, above, "", account, keys)
        else:
            into.parents.append((account, account.value))
            into.users.append(Association(account.value, account.value, user.value, user, keys))


def read_dump(path: str, text: str, ledger: Ledger, into: Accounting) -> None:
    """Adds the accounts and users of a dump."""
    parent = ROOT
    for number, body in logical_lines(text):
        match = _DUMP_LINE.match(body)
        if match is None:
            item = ledger.read(Item(path, number, "", body.split()[0]))
            ledger.dropped(item, "is not a line of sacctmgr dump", "correct the line and import again")
            continue
        kind, rest = match[1].capitalize(), match[2]
        name, options = _name_and_options(rest)
        head = ledger.read(Item(path, number, kind, name))
        record = _record(parent, name) if kind == "User" else f"{kind}={name}"
        keys = {key.lower(): ledger.read(Item(path, number, key, value, record)) for key, value in options}
        if kind == "Cluster":
            into.cluster += [head, *keys.values()]
        elif kind == "Parent":
            parent = name
            into.parents.append((head, name))
        elif kind == "Account":
            into.accounts[name] = Association(name, parent, "", head, keys)
        else:
            into.users.append(Association(parent, parent, name, head, keys))


def _record(account: str, user: str) -> str:
    """Returns the context of the options of an account, or of a user in it."""
    return f"Account={account} User={user}" if user else f"Account={account}"


def _name_and_options(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Returns the name and options of a line such as 'alice':DefaultAccount='physics':Fairshare=1."""
    match = re.match(r"\s*(?:'([^']*)'|\"([^\"]*)\"|([^:\s]*))\s*:?", text)
    assert match is not None  # each part may be empty
    name = next((group for group in match.groups() if group is not None), "")
    found: dict[str, tuple[str, str]] = {}
    for option in _OPTION.finditer(text, match.end()):
        value = next((group for group in option.groups()[1:] if group is not None), "").strip()
        found.setdefault(option[1].lower(), (option[1], value))
    return name, list(found.values())


def read_qos(path: str, text: str, ledger: Ledger, into: Accounting) -> None:
    """Adds the QOS of a table with a line of names and a line for each QOS, in columns separated by "|"."""
    rows = [(number, line.rstrip("\r").split("|")) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    (_, names), *values = rows
    for number, cells in values:
        named = dict(zip(names, cells, strict=False))
        name = named.get("Name", "").strip()
        given = [(key, cell.strip()) for key, cell in named.items() if key and cell.strip()]
        keys = {
            key.lower(): ledger.read(Item(path, number, key, value, f"QOS={name}" if key != "Name" else ""))
            for key, value in given
        }
        if name:
            into.qos[name.lower()] = SiteQos(name, keys)


def descendants(accounts: Mapping[str, Association]) -> Iterator[Association]:
    """Yields the accounts below root in the order of the file; accounts whose parents form a loop are left out."""
    for account in accounts.values():
        if account.account != ROOT and chain(account, accounts):
            yield account


def chain(account: Association, accounts: Mapping[str, Association]) -> list[Association]:
    """Returns the account and those above it, without root; [] if they form a loop."""
    found = [account]
    while found[-1].parent in accounts and found[-1].parent != ROOT:
        found.append(accounts[found[-1].parent])
        if len(found) > len(accounts):
            return []
    return found
