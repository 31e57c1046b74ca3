"""The table of GPU error codes; the data is in catalog/xid.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from headway.domain.incident import DRAINS, FaultAction


@dataclass(frozen=True, slots=True)
class Xid:
    """One GPU error code."""

    meaning: str
    action: str  # NVIDIA's immediate action, as NVIDIA names it
    kind: FaultAction


_UNKNOWN = "not in the table"
# The new action in the text of an XID 154 message, which comes after "to"; the old action comes before.
_CARRIED = (
    (re.compile(r"drain and reset", re.IGNORECASE), FaultAction.DRAIN),
    (re.compile(r"drain", re.IGNORECASE), FaultAction.DRAIN),
    (re.compile(r"node reboot|reboot", re.IGNORECASE), FaultAction.REBOOT),
    (re.compile(r"reset", re.IGNORECASE), FaultAction.RESET),
    (re.compile(r"none", re.IGNORECASE), FaultAction.LOG),
)


@cache
def xid_table() -> Mapping[int, Xid]:
    """Returns code -> entry of catalog/xid.yaml."""
    import yaml

    loaded = yaml.safe_load((files("headway.catalog") / "xid.yaml").read_text())
    rows = {code: Xid(row["meaning"], row["action"], FaultAction(row["class"])) for code, row in loaded["xid"].items()}
    return MappingProxyType(rows)


def xid_meaning(code: int) -> str:
    """Returns the meaning of a code, for messages."""
    return xid_table()[code].meaning if code in xid_table() else _UNKNOWN


def draining_codes(overrides: Mapping[int, str]) -> frozenset[int]:
    """Returns the codes that take a node out of service regardless of the message's text."""
    codes = {*xid_table(), *overrides}
    return frozenset(code for code in codes if xid_class(code, "", overrides) in DRAINS)


def xid_class(code: int, text: str, overrides: Mapping[int, str]) -> FaultAction:
    """Returns the action for a code: the cluster's setting, else the table's. For `verdict` the action is read from the
    message. An unknown code and an unreadable verdict are watched."""
    kind = (
        FaultAction(overrides[code])
        if code in overrides
        else xid_table()[code].kind
        if code in xid_table()
        else FaultAction.WATCH
    )
    if kind is not FaultAction.VERDICT:
        return kind
    carried = re.split(r"\bto\b", text, flags=re.IGNORECASE)[-1]
    return next((found for words, found in _CARRIED if words.search(carried)), FaultAction.WATCH)
