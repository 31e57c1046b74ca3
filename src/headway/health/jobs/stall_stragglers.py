"""Names the ranks that hold a stalled training back, from the stacks of all ranks. Pure.

In a training that stalls, nearly all ranks wait in the same collective operation for the others. Those that are somewhere else
(in a data loader, a checkpoint, a computation that does not end) are the ones waited for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headway.domain.slurm.hostlist import compress_numbers

MAX_SHARE = 0.25  # at most this share of the ranks can be stragglers: with more, nothing is named
_LINE = re.compile(r":\d+\)$")


@dataclass(frozen=True, slots=True)
class RankStack:
    """Where one rank was: the frames of its main thread, the innermost first."""

    rank: int
    node: str
    frames: tuple[str, ...]
    pid: int = 0

    @property
    def place(self) -> str:
        """Returns the innermost frame, "an unknown place" without frames."""
        return self.frames[0] if self.frames else "an unknown place"


@dataclass(frozen=True, slots=True)
class Stragglers:
    """The ranks that the others wait for. `waiting` is the place of the others."""

    stacks: tuple[RankStack, ...]
    waiting: str
    waiting_count: int

    @property
    def nodes(self) -> tuple[str, ...]:
        """Returns the nodes of the stragglers, without repetition."""
        return tuple(dict.fromkeys(stack.node for stack in self.stacks))

    def text(self) -> str:
        """Returns one sentence that names ranks, nodes and places."""
        first = self.stacks[0]
        numbers = compress_numbers(tuple(sorted(stack.rank for stack in self.stacks)))
        ranks = f"rank {numbers} is" if len(self.stacks) == 1 else f"ranks {numbers} are"
        return f"{ranks} in {first.place} on {', '.join(self.nodes)}, and {self.waiting_count} ranks wait in {self.waiting}"


def find_stragglers(stacks: Sequence[RankStack]) -> Stragglers | None:
    """Returns the ranks that are not where nearly all others are. None if all ranks are at one place, if there is no such
    place, or with fewer than three ranks, because then either could be waiting for the other."""
    known = [stack for stack in stacks if stack.frames]
    if len(known) < 3:
        return None
    ways = {stack.rank: _way(stack) for stack in known}
    common, count = Counter(ways.values()).most_common(1)[0]
    odd = tuple(sorted((stack for stack in known if ways[stack.rank] != common), key=lambda stack: stack.rank))
    if not odd or len(odd) > max(1, MAX_SHARE * len(known)):
        return None
    waiting = next(stack for stack in known if ways[stack.rank] == common)
    return Stragglers(odd, waiting.place, count)


def common_place(stacks: Sequence[RankStack]) -> str:
    """Returns where most ranks are, as a clause; "" without stacks."""
    places = Counter(_LINE.sub(")", stack.place) for stack in stacks if stack.frames).most_common(1)
    if not places:
        return ""
    ((place, count),) = places
    return f"{'all' if count == len(stacks) else count} of its {len(stacks)} ranks are in {place}"


def _way(stack: RankStack) -> tuple[str, ...]:
    """Returns the stack without line numbers: ranks that wait in one operation may have come from different lines."""
    return tuple(_LINE.sub(")", frame) for frame in stack.frames)
