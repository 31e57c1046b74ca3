"""Judges the figures of a fabric test, and names the node or link that holds them back. Pure.

One sound figure proves that everything in its group is sound. A low figure proves little, because other load may have
caused it: it makes suspects of everything in its group that no sound figure clears. A suspect is named if it is the only
one left in two low measurements, of which one was made again to confirm it. If two suspects fit equally, none is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from headway.domain.fabric.fabric_results import (
    FabricFinding,
    FabricGroup,
    FabricMeasurement,
    FabricVerdict,
    GroupKind,
    Suspect,
    SuspectKind,
    link_name,
)

_MANY = 3  # slow groups with one suspect that make those in half as many improbable
_ACROSS = 0.1  # even below oversubscribed switches, two leaf switches reach this share of what one does


@dataclass(frozen=True, slots=True)
class Bands:
    """The share by which a figure may be below what is expected, by kind of group."""

    within_leaf: float
    across_leaves: float
    together: float  # groups of three or more nodes

    def of(self, kind: GroupKind) -> float:
        """Returns the share for a kind."""
        if kind is GroupKind.ALL:
            return self.together
        return self.across_leaves if kind is GroupKind.LEAVES else self.within_leaf


REAL = Bands(0.2, 0.3, 0.5)
# Where GPUs are simulated, all nodes share the cores of one machine, and gloo computes on them: figures differ by
# several times without any fault.
SIMULATED = Bands(0.7, 0.7, 0.9)


@dataclass(frozen=True)
class FabricEvidence:
    """The measurements so far. `leaf_of`: node -> leaf switch. `expected_gb_s`: what the plan expects of an all-reduce
    between nodes; 0: the fleet's own figures are compared with each other."""

    leaf_of: Mapping[str, str]
    bands: Bands
    measured: tuple[FabricMeasurement, ...] = ()
    expected_gb_s: float = 0.0

    @cached_property
    def best(self) -> dict[FabricGroup, float]:
        """The best figure of each group, in GB/s."""
        found: dict[FabricGroup, float] = {}
        for one in self.measured:
            found[one.group] = max(one.gb_s, found.get(one.group, 0.0))
        return found

    @cached_property
    def _expected(self) -> dict[GroupKind, float]:
        found = {kind: self._expected_of(kind) for kind in GroupKind}
        found[GroupKind.LEAVES] = max(found[GroupKind.LEAVES], self._least_across)
        return found

    @cached_property
    def _least_across(self) -> float:
        """The least figure across leaf switches as a share of that within them: all links between leaf switches may be
        slow, so that their own figures do not show it. 0 if the plan names a figure."""
        within = self._figures(GroupKind.LEAF)
        return _ACROSS * _typical(within) if within and not self.expected_gb_s else 0.0

    def _expected_of(self, kind: GroupKind) -> float:
        if self.expected_gb_s and kind is not GroupKind.NODE:
            return self.expected_gb_s
        pairs = (GroupKind.LEAF, GroupKind.LEAVES)
        # A larger group has no equal to be compared with, so it is held against pairs, with its own wide band.
        kinds = pairs if kind is GroupKind.ALL else (kind,)
        figures = self._figures(*kinds)
        if len(figures) < 2 and kind in pairs:
            figures = self._figures(*pairs)
        return _typical(figures) if len(figures) > 1 else 0.0

    def _figures(self, *kinds: GroupKind) -> list[float]:
        return [gb_s for group, gb_s in self.best.items() if group.kind in kinds]

    def expected(self, group: FabricGroup) -> float:
        """Returns the figure of a sound group of this kind, in GB/s; 0 if there is nothing to compare with."""
        return self._expected[group.kind]

    @cached_property
    def _least(self) -> dict[GroupKind, float]:
        found = {kind: self._expected[kind] * (1 - self.bands.of(kind)) for kind in GroupKind}
        if self.expected_gb_s:  # the plan names the least figure of two nodes
            found |= dict.fromkeys((GroupKind.LEAF, GroupKind.LEAVES), self.expected_gb_s)
        found[GroupKind.LEAVES] = max(found[GroupKind.LEAVES], self._least_across)
        return found

    def least(self, group: FabricGroup) -> float:
        """Returns the figure below which the group is slow: what is expected less the band."""
        return self._least[group.kind]

    def is_slow(self, group: FabricGroup) -> bool:
        """Returns whether every figure of the group is too low."""
        return self.best[group] < self.least(group) or (self.best[group] == 0 and group in self._failed)

    @cached_property
    def _failed(self) -> frozenset[FabricGroup]:
        """The groups with a measurement that gave no figure."""
        return frozenset(one.group for one in self.measured if one.fault)

    @cached_property
    def times(self) -> Counter[FabricGroup]:
        """How often each group was measured."""
        return Counter(one.group for one in self.measured)

    @cached_property
    def slow_groups(self) -> tuple[FabricGroup, ...]:
        """The slow groups, in the order in which they were measured."""
        return tuple(group for group in self.best if self.is_slow(group))

    @cached_property
    def cleared(self) -> frozenset[Suspect]:
        """Everything that is in a sound group."""
        slow = set(self.slow_groups)
        return frozenset(part for group in self.best if group not in slow for part in self.parts(group))

    def parts(self, group: FabricGroup) -> frozenset[Suspect]:
        """Returns the nodes and links that a group uses."""
        if group.kind is GroupKind.NODE:
            return frozenset({Suspect(SuspectKind.GPUS, group.nodes[0])})
        leaves = sorted({self.leaf_of[node] for node in group.nodes})
        links = (Suspect(SuspectKind.LINK, link_name(one, other)) for one, other in combinations(leaves, 2))
        return frozenset({*(Suspect(SuspectKind.NODE, node) for node in group.nodes), *links})

    def suspects(self, group: FabricGroup) -> tuple[Suspect, ...]:
        """Returns the parts of a slow group that no sound group clears. A part that is in many slow groups explains this
        one better than a part that is in few."""
        left = self.parts(group) - self.cleared
        most = max((self._slow_with[part] for part in left), default=0)
        few = most // 2 if most >= _MANY else 0
        return tuple(sorted(part for part in left if self._slow_with[part] > few))

    @cached_property
    def _slow_with(self) -> Counter[Suspect]:
        """The number of slow groups of every part."""
        return Counter(part for group in self.slow_groups for part in self.parts(group))

    @cached_property
    def measured_again(self) -> Counter[Suspect]:
        """How often groups with each suspect were measured again."""
        return Counter(part for one in self.measured if one.again for part in self.parts(one.group))

    @cached_property
    def _sound_with(self) -> dict[Suspect, list[int]]:
        """The places of the measurements of sound groups in `measured`, by each of their parts."""
        found: dict[Suspect, list[int]] = {}
        slow = set(self.slow_groups)
        for place, one in enumerate(self.measured):
            for part in self.parts(one.group) if one.group not in slow else ():
                found.setdefault(part, []).append(place)
        return found

    @cached_property
    def findings(self) -> tuple[FabricFinding, ...]:
        """The suspects that the measurements name."""
        return tuple(self._findings())

    def _findings(self) -> Iterator[FabricFinding]:
        alone: dict[Suspect, list[FabricMeasurement]] = {}
        slow = set(self.slow_groups)
        for one in self.measured:
            if one.group in slow and len(left := self.suspects(one.group)) == 1:
                alone.setdefault(left[0], []).append(one)
        for suspect, measurements in sorted(alone.items()):
            if len(measurements) < 2 or not any(one.again for one in measurements):
                continue
            others = {part for one in measurements for part in self.parts(one.group)} - {suspect}
            places = {place for part in others for place in self._sound_with.get(part, ())}
            sound = tuple(self.measured[place] for place in sorted(places))
            fastest = max(measurements, key=lambda one: one.gb_s)
            least = min(self.least(one.group) for one in measurements)
            yield FabricFinding(suspect, fastest.gb_s, self.expected(fastest.group), least, tuple(measurements), sound)

    @cached_property
    def named(self) -> frozenset[Suspect]:
        """The suspects of the findings."""
        return frozenset(finding.suspect for finding in self.findings)

    def verdict(self) -> FabricVerdict:
        """Returns what the measurements show."""
        return FabricVerdict(self.findings, tuple(self._unclear()))

    def _unclear(self) -> Iterator[str]:
        for group in self.slow_groups:
            if self.named & self.parts(group):
                continue
            figure = f"{group.label}: {self.best[group]:.3g} GB/s, {self.expected(group):.3g} GB/s expected"
            left = self.suspects(group)
            if not left:
                yield f"{figure}; each of its parts is sound in other groups"
            elif len(left) == 1:
                yield f"{figure}; {left[0].words} may be slow, but too few other groups could be measured to confirm it"
            else:
                yield f"{figure}; this fits {_list(left)} equally"


def _typical(figures: Sequence[float]) -> float:
    """Returns the figure of a sound group: the upper quartile, because in a small fleet one slow node is in half of the
    groups or more."""
    return sorted(figures)[3 * len(figures) // 4]


def _list(suspects: Sequence[Suspect]) -> str:
    words = [suspect.words for suspect in suspects]
    return f"{', '.join(words[:-1])} and {words[-1]}"
