"""Chooses the groups that a fabric test measures, round by round, until what is slow is named. Pure.

First come the rounds of pairs. Suspects of slow pairs are then measured with nodes that are known to be sound, so that
each is cleared or confirmed. At last all nodes that are not named are measured together; a slow group is halved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from headway.domain.fabric.fabric_results import (
    LINK_MARK,
    FabricGroup,
    FabricMeasurement,
    FabricVerdict,
    GroupKind,
    Suspect,
    SuspectKind,
    link_name,
)
from headway.health.policy.fabric_evidence import Bands, FabricEvidence
from headway.health.policy.fabric_rounds import Round, all_together, first_rounds, halves, pair

_ROUNDS_AGAIN = 8  # rounds that narrow slow groups down, at most
_TIMES_AGAIN = 3  # measurements that one suspect gets there


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """Groups to measure at the same time. `again`: because earlier figures were too low."""

    groups: Round
    again: bool = False


@dataclass
class FabricPlan:
    """The course of one fabric test over nodes of one kind. `leaf_of`: node -> leaf switch; `with_links`: the nodes
    whose GPUs have links to each other; `expected_gb_s` as in FabricEvidence."""

    leaf_of: Mapping[str, str]
    bands: Bands
    with_links: frozenset[str] = frozenset()
    expected_gb_s: float = 0.0
    evidence: FabricEvidence = field(init=False)
    dropped: set[str] = field(default_factory=set)
    _first: list[Round] = field(init=False)
    _nodes_of: dict[str, list[str]] = field(init=False, default_factory=dict)  # leaf switch -> its nodes
    _again: int = 0
    _together: bool = False

    def __post_init__(self) -> None:
        self.evidence = FabricEvidence(self.leaf_of, self.bands, expected_gb_s=self.expected_gb_s)
        self._first = first_rounds(self.leaf_of, self.with_links)
        for node, leaf in self.leaf_of.items():
            self._nodes_of.setdefault(leaf, []).append(node)

    def record(self, measured: Iterable[FabricMeasurement]) -> None:
        """Adds measurements to the evidence."""
        self.evidence = replace(self.evidence, measured=(*self.evidence.measured, *measured))

    def drop(self, node: str) -> None:
        """Leaves a node out of the further rounds."""
        self.dropped.add(node)

    def next_round(self) -> PlannedRound | None:
        """Returns the next groups to measure; None when the test has ended."""
        while self._first:
            groups = self._present(self._first.pop(0))
            if groups:
                return PlannedRound(groups)
        while True:
            groups = tuple(self._narrowing()) if self._again < _ROUNDS_AGAIN else ()
            if groups:
                self._again += 1
                return PlannedRound(groups, again=True)
            if self._together:
                return None
            self._together = True
            groups = all_together(self.leaf_of, self._sound_nodes())
            if groups:
                return PlannedRound(groups)

    def verdict(self) -> FabricVerdict:
        """Returns what the measurements show."""
        return self.evidence.verdict()

    def _present(self, groups: Round) -> Round:
        return tuple(group for group in groups if self.dropped.isdisjoint(group.nodes))

    def _sound_nodes(self) -> tuple[str, ...]:
        """Returns the nodes that no finding and no open suspicion excludes; of two leaf switches whose link is doubted,
        those of one."""
        evidence = self.evidence
        doubted = {suspect for group in evidence.slow_groups for suspect in evidence.suspects(group)}
        without: set[str] = set()
        for suspect in sorted(doubted):
            if suspect.kind is SuspectKind.LINK and without.isdisjoint(leaves := suspect.name.split(LINK_MARK)):
                without.add(leaves[-1])
        return tuple(
            node
            for node, leaf in self.leaf_of.items()
            if node not in self.dropped and leaf not in without and Suspect(SuspectKind.NODE, node) not in doubted
        )

    def _narrowing(self) -> Iterator[FabricGroup]:
        """Yields groups that share no node, each of which clears or confirms a suspect."""
        evidence = self.evidence
        used: set[str] = set(self.dropped)
        for group in evidence.slow_groups:
            if evidence.named & evidence.parts(group):
                continue
            for proposed in self._for_group(group, used):
                if used.isdisjoint(proposed.nodes):
                    used.update(proposed.nodes)
                    yield proposed

    def _for_group(self, group: FabricGroup, used: set[str]) -> Iterator[FabricGroup]:
        evidence = self.evidence
        suspects = evidence.suspects(group)
        times = evidence.times[group]
        if group.kind is GroupKind.ALL and len(suspects) != 1:
            yield from self._halves(group, repeated=times > 1)
            return
        proposals = [self._with_sound(suspect, used) for suspect in suspects if self._may_repeat(suspect)]
        found = [proposal for proposal in proposals if proposal is not None]
        yield from found
        if not found and times == 1:
            yield group  # nothing sound to measure its parts with: once more as it was

    def _halves(self, group: FabricGroup, *, repeated: bool) -> Iterator[FabricGroup]:
        """Yields the group once more, then its halves."""
        if not repeated:
            yield group
            return
        for half in halves(self.leaf_of, group):
            if half not in self.evidence.best:
                yield half

    def _may_repeat(self, suspect: Suspect) -> bool:
        return self.evidence.measured_again[suspect] < _TIMES_AGAIN

    def _with_sound(self, suspect: Suspect, used: set[str]) -> FabricGroup | None:
        """Returns a group in which only the suspect is not known to be sound; None if there is none."""
        if suspect.kind is SuspectKind.GPUS:
            return FabricGroup(GroupKind.NODE, (suspect.name,))
        choices = (
            self._pairs_with(suspect, used) if suspect.kind is SuspectKind.NODE else self._pairs_over(suspect, used)
        )
        best, fewest = None, 0
        for group in choices:
            times = self.evidence.times[group]
            if best is None or times < fewest:
                best, fewest = group, times
            if not times:
                break
        return best

    def _pairs_with(self, suspect: Suspect, used: set[str]) -> Iterator[FabricGroup]:
        """Yields the pairs of a node with sound ones over sound links, those of its own leaf switch first."""
        if suspect.name in used:
            return
        own = self.leaf_of[suspect.name]
        for leaf in (own, *(other for other in self._nodes_of if other != own)):
            if leaf == own or Suspect(SuspectKind.LINK, link_name(own, leaf)) in self.evidence.cleared:
                yield from (pair(self.leaf_of, suspect.name, node) for node in self._free_sound(leaf, used))

    def _pairs_over(self, suspect: Suspect, used: set[str]) -> Iterator[FabricGroup]:
        """Yields the pairs of sound nodes over a link."""
        one, other = suspect.name.split(LINK_MARK)
        ends = list(self._free_sound(other, used))
        for node in self._free_sound(one, used):
            yield from (pair(self.leaf_of, node, far) for far in ends)

    def _free_sound(self, leaf: str, used: set[str]) -> Iterator[str]:
        """Yields the nodes of a leaf switch that are known to be sound and not used."""
        cleared = self.evidence.cleared
        for node in self._nodes_of[leaf]:
            if node not in used and Suspect(SuspectKind.NODE, node) in cleared:
                yield node
