"""Items read from a site, and the verdict on each: what becomes of it in the cluster file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

HIDDEN = "(secret)"
# Keys whose values are secrets, in all files that are read
_SECRET_KEY = re.compile(r"pass(word|phrase|wd)?[0-9]*$|secret|token|private_?key|api_?key|credential", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=//)[^/\s]*(?=@)")
# Also password2=, client_secret=, and user=NAME%PASSWORD of CIFS. An option such as secretfile= names a file.
_IN_OPTIONS = re.compile(
    r"(?i)(?<![\w.-])(?=[\w.-]*?(?:pass|secret|token|private_?key))([\w.-]++)(?<!file)(?<!path)\s*=\s*(?:\"[^\"]*\"|[^,;\s]+)"
)
_AFTER_USER = re.compile(r"(?i)\b(user(?:name)?=[^%,;\s]*%)[^,;\s]+")
_LONGEST = 200  # characters of a value in the report


class Kind(StrEnum):
    """What becomes of an item."""

    CARRIED = "carried"  # a field of the cluster file has its meaning
    KEPT = "kept"  # the key itself is in the cluster file, under slurm
    SAME = "same"  # Headway's file has the same value, or does without the key and Slurm's default is that value
    NOT_CARRIED = "not_carried"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one item. `place`: field of the cluster file; `instead`: what a person does about it."""

    kind: Kind
    place: str = ""
    why: str = ""
    instead: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One key or line of a file. `context`: the record that it belongs to, such as "PartitionName=gpu". `public`: the value is
    no secret, whatever the key is called."""

    file: str
    line: int
    key: str
    value: str
    context: str = ""
    public: bool = False

    @property
    def shown(self) -> str:
        """The value without secrets, shortened: for reports."""
        return hide_secrets("" if self.public else self.key, self.value)


@dataclass
class Ledger:
    """All items read, with their verdicts. The first verdict on an item that is not carried stands; a default that
    holds for several records keeps it."""

    items: list[Item] = field(default_factory=list)
    _verdicts: dict[Item, Verdict] = field(default_factory=dict)

    def read(self, item: Item) -> Item:
        """Records an item that was read, and returns it."""
        self.items.append(item)
        return item

    def decide(self, item: Item, verdict: Verdict) -> None:
        """Records the verdict on an item."""
        before = self._verdicts.get(item)
        if before is None or (verdict.kind is Kind.NOT_CARRIED and before.kind is not Kind.NOT_CARRIED):
            self._verdicts[item] = verdict

    def carried(self, item: Item, place: str, why: str = "") -> None:
        """Records that a field of the cluster file has the item's meaning."""
        self.decide(item, Verdict(Kind.CARRIED, place, why))

    def kept(self, item: Item, place: str, why: str = "") -> None:
        """Records that the key is in the cluster file under `slurm`."""
        self.decide(item, Verdict(Kind.KEPT, place, why))

    def same(self, item: Item, why: str = "") -> None:
        """Records that Headway's cluster has the same without a field."""
        self.decide(item, Verdict(Kind.SAME, "", why))

    def dropped(self, item: Item, why: str, instead: str = "") -> None:
        """Records that the item is not carried, why, and what to do instead. Secrets that `why` quotes are hidden."""
        self.decide(item, Verdict(Kind.NOT_CARRIED, "", _without_secrets(why), instead))

    def is_open(self, item: Item) -> bool:
        """Returns whether the item has no verdict yet."""
        return item not in self._verdicts

    def open_items(self) -> Iterator[Item]:
        """Yields items without a verdict."""
        return (item for item in self.items if item not in self._verdicts)

    def entries(self) -> list[tuple[Item, Verdict]]:
        """Returns each item with its verdict, in the order of reading. Raises KeyError for an item without one."""
        return [(item, self._verdicts[item]) for item in self.items]


def hide_secrets(key: str, value: str) -> str:
    """Returns a value for a report: secrets replaced, control characters left out, cut at 200 characters."""
    if _SECRET_KEY.search(key) and value:
        return HIDDEN
    text = _without_secrets(value)
    text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _without_secrets(text: str) -> str:
    text = _IN_OPTIONS.sub(lambda match: f"{match[1]}={HIDDEN}", _IN_URL.sub(HIDDEN, text))
    return _AFTER_USER.sub(lambda match: f"{match[1]}{HIDDEN}", text)


def has_secret(source: str, options: str) -> bool:
    """Returns whether a mount has a secret, also a masked one. `source`: such as //user:password@host/share; `options`:
    such as name=value,..."""
    password = re.search(r"//[^/\s]*:[^/\s]*@", source)
    return any(found is not None for found in (password, _IN_OPTIONS.search(options), _AFTER_USER.search(options)))


def count_kinds(entries: Iterable[tuple[Item, Verdict]]) -> dict[Kind, int]:
    """Returns the number of items by kind of verdict; every kind is there."""
    found = dict.fromkeys(Kind, 0)
    for _, verdict in entries:
        found[verdict.kind] += 1
    return found
