"""Keys of slurm.conf for the whole cluster: which field has their meaning, or why none has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headway.catalog.allowed_slurm_keys import CLUSTER_KEYS, key_fault
from headway.catalog.slurm_releases import is_at_least
from headway.slurm_import.conf_reader import RECORDS, Record
from headway.slurm_import.keys_not_carried import CLUSTER_REASONS, PARTITION_REASONS
from headway.slurm_import.slurm_defaults import SLURM_DEFAULTS
from headway.slurm_import.values import same_value
from headway.slurm_import.verdicts import Item, Ledger

_ALLOWED = {key.lower(): key for key in CLUSTER_KEYS}
CONTROLLERS = ("slurmctldhost", "controlmachine", "controladdr", "backupcontroller", "backupaddr")
# Spellings of older releases
_OLDER = {"waittime": "WaitTime", "priorityweightfairshare": "PriorityWeightFairshare"}
_LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")


def cluster_items(records: Iterable[Record]) -> list[Item]:
    """Returns the items of lines that are not about nodes or partitions."""
    return [item for record in records if record.kind not in RECORDS for item in record.items]


def find(items: Iterable[Item], *keys: str) -> list[Item]:
    """Returns the items with one of these keys (in lower case), in order."""
    return [item for item in items if item.key.lower() in keys]


def last(items: Iterable[Item], key: str) -> str:
    """Returns the value of a key that counts for Slurm, the last one; "" without it."""
    found = find(items, key)
    return found[-1].value if found else ""


def kept_keys(items: Iterable[Item], ours: Mapping[str, str], version: str) -> dict[str, Item]:
    """Returns the keys that go into `slurm` of the cluster file, with their items: allowed ones whose value differs from
    that of `ours`, Headway's own file, or from Slurm's default. `version`: Slurm of the node image."""
    found: dict[str, Item] = {}
    for low, item in {item.key.lower(): item for item in items if item.value}.items():
        key = _ALLOWED.get(low)
        if key is None or same_value(kept_value(key, item.value), ours.get(low, SLURM_DEFAULTS.get(low, "\n"))):
            continue
        if not key_fault(key, kept_value(key, item.value), version, partition=False)[0]:
            found[key] = item
    return found


def kept_value(key: str, value: str) -> str:
    """Returns a value in the form that the cluster file checks."""
    text = value.strip()
    if CLUSTER_KEYS[key].pattern == "YES|NO":
        return {"1": "YES", "true": "YES", "0": "NO", "false": "NO"}.get(text.lower(), text.upper())
    if key.endswith("Debug"):
        return _LEVELS[int(text)] if re.fullmatch("[0-9]", text) else text.lower()
    if text.lower() in ("unlimited", "infinite"):
        return "UNLIMITED"
    if key == "EnforcePartLimits":
        return {"YES": "ALL"}.get(text.upper(), text.upper())
    if key in ("PriorityMaxAge", "PriorityDecayHalfLife") and re.fullmatch(r"[0-9]+-[0-9]+(:[0-9]{2})?", text):
        return text
    if key == "PriorityFlags":
        return text.upper().replace(" ", "")
    return text


def _in_our_form(key: str, value: str) -> str:
    return kept_value(_ALLOWED[key], value) if key in _ALLOWED else value


def decide_cluster_keys(
    items: Iterable[Item], ours: Mapping[str, str], kept: Mapping[str, Item], version: str, ledger: Ledger
) -> None:
    """Decides on every key for the whole cluster that has no verdict yet. `ours`: keys of the slurm.conf that Headway
    renders for the imported file, in lower case; `kept`: the keys under `slurm`."""
    counted = {item.key.lower(): item for item in items}
    for item in items:
        key = item.key.lower()
        if not ledger.is_open(item):
            continue
        if key == "":
            ledger.dropped(item, "is not key=value", "correct the line and import again")
        elif counted[key] is not item and key not in CONTROLLERS:
            ledger.dropped(item, "the same key on a later line counts", "remove this line")
        elif not item.value:
            ledger.same(item, "it is empty")
        elif any(item is one for one in kept.values()):
            ledger.kept(item, f"slurm.{_ALLOWED[key]}")
        elif key in ours and same_value(_in_our_form(key, item.value), ours[key]):
            ledger.same(item)
        elif key not in ours and same_value(_in_our_form(key, item.value), SLURM_DEFAULTS.get(key, "\n")):
            ledger.same(item, "Slurm's default")
        elif key in _ALLOWED:
            message, hint = key_fault(_ALLOWED[key], kept_value(_ALLOWED[key], item.value), version, partition=False)
            since = CLUSTER_KEYS[_ALLOWED[key]].since
            newer = "" if not since or is_at_least(version, since) else "use a newer image"
            ledger.dropped(
                item, message or "the cluster file does not take it", hint or newer or f"give slurm.{_ALLOWED[key]}"
            )
        elif key in CLUSTER_REASONS:
            ledger.dropped(item, *CLUSTER_REASONS[key])
        elif key in PARTITION_REASONS:
            ledger.dropped(item, "is a key of partitions", "put it on the line of a partition")
        else:
            ledger.dropped(
                item,
                "is not a key of slurm.conf that Slurm 22.05 to 26.05 has",
                "correct its spelling and import again",
            )
