"""The query in the address of the queue's page: filters, order, shown columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from headway.domain.slurm.job_states import JOB_KINDS
from headway.services.queue.query import QueueQuery
from headway.services.queue.queue_fields import BY_KEY
from headway.web.views.queue.queue_columns import COLUMNS, DEFAULT_COLUMNS, QueueColumn

SIZES = (25, 50, 100, 250)
SIZE = 50
MAX_OPEN = 10  # arrays whose tasks are shown at the same time


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """The query in the address. Unknown words are ignored, so that an old link still shows a queue."""

    show: tuple[str, ...] = ("running", "waiting")
    q: str = ""
    user: str = ""
    team: str = ""
    partition: str = ""
    state: str = ""
    node: str = ""
    array: int = 0  # only this array, each task in a row of its own
    open: tuple[int, ...] = ()  # arrays whose tasks are shown below their row
    sort: str = ""
    cols: tuple[str, ...] = DEFAULT_COLUMNS
    size: int = SIZE
    cursor: str = ""

    @staticmethod
    def of(words: Callable[[str], Sequence[str]]) -> QueueAddress:
        """Returns the query. `words(name)`: the values of a query parameter; values may contain commas."""

        def one(name: str) -> str:
            return next(iter(words(name)), "").strip()[:200]

        def several(name: str, known: Iterable[str]) -> tuple[str, ...]:
            values = [part for value in words(name) for part in value.split(",")]
            return tuple(dict.fromkeys(part for part in values if part in known))

        def numbers(name: str) -> tuple[int, ...]:
            texts = ",".join(words(name)).split(",")
            return tuple(int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 11)

        size = one("size")
        sort = one("sort")
        return QueueAddress(
            show=several("show", JOB_KINDS) or ("running", "waiting"),
            q=one("q"),
            user=one("user"),
            team=one("team"),
            partition=one("partition"),
            state=one("state").upper(),
            node=one("node"),
            array=next(iter(numbers("array")), 0),
            open=tuple(dict.fromkeys(numbers("open")))[:MAX_OPEN],
            sort=sort if sort.removeprefix("-") in BY_KEY else "",
            cols=several("cols", COLUMNS) or DEFAULT_COLUMNS,
            size=int(size) if size.isascii() and size.isdigit() and int(size) in SIZES else SIZE,
            cursor=one("cursor"),
        )

    def to_queue_query(self) -> QueueQuery:
        """Returns the query for the queue."""

        def those(text: str) -> frozenset[str]:
            return frozenset(part for part in text.split(",") if part)

        return QueueQuery(
            kinds=frozenset(JOB_KINDS) if self.state else frozenset(self.show),
            states=those(self.state),
            users=those(self.user),
            accounts=those(self.team),
            partitions=those(self.partition),
            node=self.node,
            array=self.array,
            arrays_as_one=not self.array,
            search=self.q,
            sort=self.sort,
            limit=self.size,
            cursor=self.cursor,
        )

    def to(self, **changes: object) -> str:
        """Returns the address of the same view with these changes; of its first page unless a cursor is among them."""
        new = replace(self, **{"cursor": "", **changes})  # type: ignore[arg-type]
        plain = QueueAddress()
        words = {}
        for name in ("q", "user", "team", "partition", "state", "node", "array", "sort", "cursor"):
            if value := getattr(new, name):
                words[name] = str(value)
        if new.open:
            words["open"] = ",".join(map(str, new.open))
        if set(new.show) != set(plain.show):
            words["show"] = ",".join(new.show)
        if new.cols != plain.cols:
            words["cols"] = ",".join(new.cols)
        if new.size != plain.size:
            words["size"] = str(new.size)
        return f"?{urlencode(words, safe=',:')}"

    def toggle(self, array: int) -> str:
        """Returns the address of the same page with the tasks of this array shown, or hidden if they are shown."""
        others = tuple(number for number in self.open if number != array)
        return self.to(open=others if array in self.open else (*others, array), cursor=self.cursor)

    @property
    def filtered(self) -> bool:
        """Returns whether jobs are filtered by anything but their kind."""
        return any((self.q, self.user, self.team, self.partition, self.state, self.node, self.array))

    @property
    def columns(self) -> tuple[QueueColumn, ...]:
        """Returns the columns to show."""
        return tuple(COLUMNS[key] for key in self.cols)
