"""Compares the figures of a fabric test with the leaf switches that the cluster file declares. Pure.

If the figures of pairs fall into two levels, nodes joined by fast pairs are below one switch as far as NCCL notices. These
groups are compared with the declared leaf switches. Pairs with a node or link that the test names as slow are left out, those
with a node that is slower than all other pairs are told apart, and nothing is said if the figures contradict each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headway.domain.fabric.fabric_results import FabricGroup, FabricMismatch, GroupKind, SuspectKind
from headway.domain.slurm.hostlist import compress, natural_key
from headway.health.policy.fabric_evidence import FabricEvidence

_EQUAL = 0.9  # share of the bandwidth within leaf switches from which that across them counts as equal
_FEW = 2  # pairs of a kind that are too few to speak of all of them, if there are fewer

Pair = tuple[str, str]


def switch_mismatches(evidence: FabricEvidence, *, simulated: bool = False) -> tuple[FabricMismatch, ...]:
    """Returns where the figures differ from the declared leaf switches. `simulated`: all machines share one host, whose
    switches are not real: equal bandwidth everywhere is then no news."""
    band = max(evidence.bands.within_leaf, evidence.bands.across_leaves)
    figures, slow = _without_slow_nodes(evidence.leaf_of, dict(_sound_pairs(evidence)), band)
    said = tuple(slow.values())
    limit = _level_limit(list(figures.values()), band)
    if not limit:
        return said if simulated else (*said, *_without_levels(evidence, figures))
    fast = [pair for pair, gb_s in figures.items() if gb_s >= limit]
    groups = _joined(fast)
    if any(one in groups and groups.get(other) is groups[one] for one, other in figures if figures[one, other] < limit):
        return (*said, *_inverted(evidence, figures))
    sound = {part.name for part in evidence.cleared if part.kind is SuspectKind.NODE}
    comparison = _Comparison(evidence.leaf_of, figures, _distinct(groups), sound - groups.keys() - slow.keys())
    return (*said, *comparison.mismatches())


def _sound_pairs(evidence: FabricEvidence) -> Iterator[tuple[Pair, float]]:
    for group, gb_s in evidence.best.items():
        if group.kind in (GroupKind.LEAF, GroupKind.LEAVES) and gb_s and not evidence.named & evidence.parts(group):
            yield _pair(group), gb_s


def _pair(group: FabricGroup) -> Pair:
    one, other = group.nodes
    return one, other


def _level_limit(figures: Sequence[float], band: float) -> float:
    """Returns the least figure of the upper level; 0 if there is one level only. Levels differ by more than the band by
    which equal pairs may differ."""
    steps = [(high / low, high) for low, high in pairwise(sorted(figures))]
    ratio, limit = max(steps, default=(1.0, 0.0))
    return limit if ratio > 1 / (1 - band) else 0.0


def _without_slow_nodes(
    leaf_of: Mapping[str, str], figures: Mapping[Pair, float], band: float
) -> tuple[dict[Pair, float], dict[str, FabricMismatch]]:
    """Takes out the nodes that are slower with every node than all others are, within leaf switches and across them: the
    cables of their leaf switch would otherwise be blamed. Returns the other figures, and what to say of each such node."""
    left = dict(figures)
    said: dict[str, FabricMismatch] = {}
    while limit := _level_limit(list(left.values()), band):
        of_node: dict[str, dict[str, float]] = {}
        for (one, other), gb_s in left.items():
            of_node.setdefault(one, {})[other] = gb_s
            of_node.setdefault(other, {})[one] = gb_s
        low = {node for node, its in of_node.items() if max(its.values()) < limit}
        rest = {pair: gb_s for pair, gb_s in left.items() if low.isdisjoint(pair)}
        if not any(leaf_of[one] != leaf_of[other] for one, other in rest):
            break  # a node that is connected to another leaf switch could have the same figures
        least = min(rest.values())
        slow = [
            node
            for node in sorted(low, key=natural_key)
            if max(of_node[node].values()) < (1 - band) * least
            and sum(leaf_of[other] == leaf_of[node] and other not in low for other in of_node[node]) >= _FEW
        ]
        if not slow:
            break
        for node in slow:
            said[node] = FabricMismatch(
                f"{node} reaches at most {max(of_node[node].values()):.3g} GB/s in its pairs, others at least {least:.3g} GB/s",
                "look at its RDMA ports and cables",
            )
        left = {pair: gb_s for pair, gb_s in left.items() if not set(slow) & set(pair)}
    return left, said


def _joined(pairs: Sequence[Pair]) -> dict[str, frozenset[str]]:
    """Returns the group of each node: the nodes that chains of these pairs join."""
    partners: dict[str, list[str]] = {}
    for one, other in pairs:
        partners.setdefault(one, []).append(other)
        partners.setdefault(other, []).append(one)
    groups: dict[str, frozenset[str]] = {}
    for first in partners:
        if first in groups:
            continue
        found, todo = {first}, [first]
        while todo:
            more = [node for node in partners[todo.pop()] if node not in found]
            found.update(more)
            todo += more
        groups.update(dict.fromkeys(found, frozenset(found)))
    return groups


def _distinct(groups: Mapping[str, frozenset[str]]) -> list[list[str]]:
    found = [sorted(group, key=natural_key) for group in set(groups.values())]
    return sorted(found, key=lambda group: natural_key(group[0]))


def _medians(evidence: FabricEvidence, figures: Mapping[Pair, float]) -> tuple[float, float] | None:
    """Returns the medians of the pairs within and across leaf switches; None if there are too few of either."""
    leaf_of = evidence.leaf_of
    within = sorted(gb_s for (one, other), gb_s in figures.items() if leaf_of[one] == leaf_of[other])
    across = sorted(gb_s for (one, other), gb_s in figures.items() if leaf_of[one] != leaf_of[other])
    if min(len(within), len(across)) < _FEW:
        return None
    return within[len(within) // 2], across[len(across) // 2]


def _without_levels(evidence: FabricEvidence, figures: Mapping[Pair, float]) -> Iterator[FabricMismatch]:
    medians = _medians(evidence, figures)
    if medians and medians[1] >= _EQUAL * medians[0]:
        within, across = medians
        yield FabricMismatch(
            f"pairs across leaf switches are as fast as those within ({across:.3g} and {within:.3g} GB/s)",
            "jobs gain no bandwidth from nodes of one leaf switch: leave out --switches, which makes them wait",
        )


def _inverted(evidence: FabricEvidence, figures: Mapping[Pair, float]) -> Iterator[FabricMismatch]:
    medians = _medians(evidence, figures)
    if medians and medians[0] < (1 - evidence.bands.within_leaf) * medians[1]:
        within, across = medians
        yield FabricMismatch(
            f"pairs within leaf switches are slower than those across ({within:.3g} and {across:.3g} GB/s)",
            "compare the declared leaf switches (scontrol show topology) with the cables, and correct fabric",
        )


@dataclass(frozen=True)
class _Comparison:
    """The figures of pairs, the groups that fast pairs join, and the sound nodes without a fast pair."""

    leaf_of: Mapping[str, str]
    figures: Mapping[Pair, float]
    groups: Sequence[Sequence[str]]
    single: Collection[str]

    def mismatches(self) -> Iterator[FabricMismatch]:
        """Yields a mismatch for each group with nodes of several leaf switches, and each leaf switch with several
        groups."""
        undecided: list[Sequence[str]] = []
        for group in self.groups:
            counts = Counter(self.leaf_of[node] for node in group)
            (leaf, most), *others = counts.most_common()
            if not others:
                continue
            if all(self._is_whole(one, group) for one in counts):
                yield self._one_switch(sorted(counts, key=natural_key), group)
            elif most > others[0][1]:
                yield from self._misplaced(leaf, group)
            else:
                undecided.append(group)
        if undecided:
            yield self._other_groups(undecided)
        yield from self._divided()
        yield from self._elsewhere()

    def _is_whole(self, leaf: str, group: Sequence[str]) -> bool:
        """Returns whether all measured nodes of a leaf switch are in this group."""
        here = [node for node in group if self.leaf_of[node] == leaf]
        measured = {node for pair in self.figures for node in pair if self.leaf_of[node] == leaf}
        return measured == set(here)

    def _one_switch(self, leaves: Sequence[str], group: Sequence[str]) -> FabricMismatch:
        return FabricMismatch(
            f"{_words(leaves)} measure as one leaf switch: pairs across them reach "
            f"{self._least(group, group, across=True):.3g} GB/s, those within {self._least(group, group):.3g} GB/s",
            f"if {compress(group)} are below one switch, declare one leaf switch for them (fabric.leaf_size or fabric.switches)",
        )

    def _misplaced(self, leaf: str, group: Sequence[str]) -> Iterator[FabricMismatch]:
        rest = [node for node in group if self.leaf_of[node] == leaf]
        strangers: dict[str, list[str]] = {}
        for node in group:
            if self.leaf_of[node] != leaf:
                strangers.setdefault(self.leaf_of[node], []).append(node)
        for declared, nodes in strangers.items():
            own = [n for n, its in self.leaf_of.items() if its == declared and n not in nodes]
            slow = self._best(nodes, own)
            if not slow:
                continue
            yield FabricMismatch(
                f"{compress(nodes)} {'is' if len(nodes) == 1 else 'are'} declared below {declared} and "
                f"{'measures' if len(nodes) == 1 else 'measure'} like the nodes of {leaf}: {slow:.3g} GB/s with nodes of "
                f"{declared}, {self._best(nodes, rest):.3g} GB/s with those of {leaf}",
                f"connect {'it' if len(nodes) == 1 else 'them'} to {declared}, or declare "
                f"{'it' if len(nodes) == 1 else 'them'} below {leaf} (fabric.switches; with owned machines, the order of hosts)",
            )

    def _other_groups(self, groups: Sequence[Sequence[str]]) -> FabricMismatch:
        declared: dict[str, list[str]] = {}
        for node in sorted((node for group in groups for node in group), key=natural_key):
            declared.setdefault(self.leaf_of[node], []).append(node)
        return FabricMismatch(
            f"fast pairs join {_words([compress(group) for group in groups])}, and declared are "
            + _words([f"{compress(nodes)} below {leaf}" for leaf, nodes in declared.items()]),
            "compare cables and fabric.switches (with owned machines also the order of hosts), and correct one of them",
        )

    def _divided(self) -> Iterator[FabricMismatch]:
        parts: dict[str, list[Sequence[str]]] = {}
        for group in self.groups:
            leaves = {self.leaf_of[node] for node in group}
            if len(leaves) == 1:
                parts.setdefault(leaves.pop(), []).append(group)
        for leaf, groups in parts.items():
            if len(groups) > 1 and (between := self._best(groups[0], [node for group in groups[1:] for node in group])):
                yield FabricMismatch(
                    f"the nodes below {leaf} fall into {_words([compress(group) for group in groups])}: pairs of one "
                    f"group reach {min(self._least(group, group) for group in groups):.3g} GB/s, of two {between:.3g} GB/s",
                    "if they are below different switches, declare these (fabric.leaf_size or fabric.switches), so that Slurm "
                    "places jobs by them",
                )

    def _elsewhere(self) -> Iterator[FabricMismatch]:
        """Yields the single nodes that are slow with two or more nodes of their own leaf switch, which have fast pairs."""
        grouped = {node for group in self.groups for node in group}
        for node in sorted(self.single, key=natural_key):
            leaf = self.leaf_of[node]
            own = [other for other in grouped if self.leaf_of[other] == leaf]
            found = [gb_s for _, gb_s in self._between([node], own)]
            if len(found) >= _FEW:
                yield FabricMismatch(
                    f"{node} is declared below {leaf} and measures like a node of another leaf switch: {max(found):.3g} GB/s "
                    f"with nodes of {leaf}",
                    f"connect it to {leaf}, or declare it below the leaf switch that it is connected to (fabric.switches; with "
                    "owned machines, the order of hosts)",
                )

    def _between(self, some: Sequence[str], others: Sequence[str]) -> Iterator[tuple[Pair, float]]:
        one, other = set(some), set(others)
        for pair, gb_s in self.figures.items():
            if (pair[0] in one and pair[1] in other) or (pair[1] in one and pair[0] in other):
                yield pair, gb_s

    def _best(self, some: Sequence[str], others: Sequence[str]) -> float:
        return max((gb_s for _, gb_s in self._between(some, others)), default=0.0)

    def _least(self, some: Sequence[str], others: Sequence[str], *, across: bool = False) -> float:
        """Returns the lowest figure of the pairs within leaf switches, or across them."""
        leaf_of = self.leaf_of
        found = self._between(some, others)
        return min((gb_s for (a, b), gb_s in found if (leaf_of[a] != leaf_of[b]) is across), default=0.0)


def _words(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
