"""Which groups of nodes a fabric test measures first. Pure.

Groups of one round share no node and are measured at the same time. Not all pairs are measured: every node is in two or
three pairs within its leaf switch, and leaf switches are paired as in a tournament, with other nodes in each round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest

from headway.domain.fabric.fabric_results import FabricGroup, GroupKind
from headway.domain.slurm.hostlist import natural_key

Round = tuple[FabricGroup, ...]
MOST_TOGETHER = 32  # nodes of the largest group; more are a sample from all leaf switches
_EVERY_LEAF = 8  # up to so many leaf switches, every two of them are measured
_ROUNDS_IN_LEAF = 2


def pair(leaf_of: Mapping[str, str], one: str, other: str) -> FabricGroup:
    """Returns the group of two nodes."""
    kind = GroupKind.LEAF if leaf_of[one] == leaf_of[other] else GroupKind.LEAVES
    return FabricGroup(kind, tuple(sorted((one, other), key=natural_key)))


def first_rounds(leaf_of: Mapping[str, str], with_links: frozenset[str] = frozenset()) -> list[Round]:
    """Returns the rounds of pairs, and before them one round of the single nodes `with_links`, whose GPUs have links
    to each other. `leaf_of`: node -> leaf switch."""
    leaves = _by_leaf(leaf_of)
    single = tuple(FabricGroup(GroupKind.NODE, (node,)) for node in leaf_of if node in with_links)
    rounds = [single, *_rounds_in_leaves(leaf_of, leaves), *_rounds_across_leaves(leaf_of, leaves)]
    return [groups for groups in rounds if groups]


def all_together(leaf_of: Mapping[str, str], nodes: Sequence[str]) -> Round:
    """Returns the group of all these nodes; () if they are fewer than three. Of more than MOST_TOGETHER it takes a part
    of each leaf switch."""
    if len(nodes) < 3:
        return ()
    by_leaf = _by_leaf({node: leaf_of[node] for node in nodes})
    spread = [node for row in zip_longest(*by_leaf) for node in row if node is not None]
    return (FabricGroup(GroupKind.ALL, _in_leaf_order(leaf_of, spread[:MOST_TOGETHER])),)


def halves(leaf_of: Mapping[str, str], group: FabricGroup) -> Round:
    """Returns the two halves of a group of three or more nodes; nodes of a leaf switch stay together where possible."""
    nodes = _in_leaf_order(leaf_of, group.nodes)
    middle = (len(nodes) + 1) // 2
    return tuple(_group(leaf_of, part) for part in (nodes[:middle], nodes[middle:]) if len(part) > 1)


def tournament(count: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yields rounds of pairs of the numbers below `count`, so that every two numbers meet once."""
    places = [*range(count), *([-1] if count % 2 else [])]
    for _ in range(len(places) - 1):
        half = len(places) // 2
        met = zip(places[:half], reversed(places[half:]), strict=True)
        yield tuple((min(two), max(two)) for two in met if -1 not in two)
        places = [places[0], places[-1], *places[1:-1]]


def _rounds_in_leaves(leaf_of: Mapping[str, str], leaves: Sequence[Sequence[str]]) -> Iterator[Round]:
    schedules = []
    for nodes in leaves:
        enough = _ROUNDS_IN_LEAF + len(nodes) % 2  # with an odd number one node waits in each round
        schedules.append(
            [[pair(leaf_of, nodes[a], nodes[b]) for a, b in met] for met in islice(tournament(len(nodes)), enough)]
        )
    for row in zip_longest(*schedules, fillvalue=[]):
        yield tuple(group for groups in row for group in groups)


def _rounds_across_leaves(leaf_of: Mapping[str, str], leaves: Sequence[Sequence[str]]) -> Iterator[Round]:
    few = len(leaves).bit_length() if len(leaves) > _EVERY_LEAF else None
    schedule = list(islice(tournament(len(leaves)), few))
    if len(leaves) == 2:
        schedule = schedule * min(2, *map(len, leaves))
    for turn, met in enumerate(schedule):
        yield tuple(group for a, b in met for group in _pairs_across(leaf_of, leaves[a], leaves[b], turn))


def _pairs_across(
    leaf_of: Mapping[str, str], one: Sequence[str], other: Sequence[str], turn: int
) -> Iterator[FabricGroup]:
    """Yields pairs that use every node of the smaller leaf switch; `turn` chooses the partners."""
    few, many = sorted((one, other), key=len)
    for place, node in enumerate(few):
        yield pair(leaf_of, node, many[(place + turn) % len(many)])


def _by_leaf(leaf_of: Mapping[str, str]) -> list[list[str]]:
    leaves: dict[str, list[str]] = {}
    for node in sorted(leaf_of, key=natural_key):
        leaves.setdefault(leaf_of[node], []).append(node)
    return [leaves[leaf] for leaf in sorted(leaves, key=natural_key)]


def _in_leaf_order(leaf_of: Mapping[str, str], nodes: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(nodes, key=lambda node: (natural_key(leaf_of[node]), natural_key(node))))


def _group(leaf_of: Mapping[str, str], nodes: Sequence[str]) -> FabricGroup:
    return pair(leaf_of, *nodes) if len(nodes) == 2 else FabricGroup(GroupKind.ALL, tuple(nodes))
