"""Converts `fabric` to slots and switches. The name of a slot contains its leaf: lab-2-3 is place 3 under leaf 2, and
lab-gpu-2-3 is place 3 under leaf 2 of group gpu."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headway.clusterfile.models.fabric import FabricPart, SwitchPart
from headway.domain.cluster import MAIN_GROUP, Slot, Switch

SPINE = "spine"
Trouble = tuple[str, str, str]  # path under fabric, message, hint


def lay_out_fabric(
    cluster: str, fabric: FabricPart, sizes: Mapping[str, int]
) -> tuple[tuple[Slot, ...], tuple[Switch, ...]]:
    """Returns the slots in leaf order and the switches above them; no switches if there is only one leaf. `sizes`:
    group -> number of slots. `fabric` must have no faults. A named group has its own leaves, so that no node is
    renamed when another group grows."""
    slots: list[Slot] = []
    leaves: dict[str, list[str]] = {}
    for group, leaf, name in _places(cluster, fabric, sizes):
        slots.append(Slot(name, leaf, len(slots) + 1, group))
        leaves.setdefault(leaf, []).append(name)
    switches = [Switch(leaf, nodes=tuple(names)) for leaf, names in leaves.items()]
    if len(switches) == 1:
        return tuple(slots), ()
    if fabric.switches is None:
        return tuple(slots), (*switches, Switch(SPINE, children=tuple(leaves)))
    above = [Switch(part.name, children=tuple(part.children)) for part in fabric.switches if part.children]
    return tuple(slots), (*switches, *above)


def _places(cluster: str, fabric: FabricPart, sizes: Mapping[str, int]) -> Iterator[tuple[str, str, str]]:
    """Yields (group, leaf, slot name) for each slot."""
    if fabric.switches is not None:
        groups = [name for name, size in sizes.items() for _ in range(size)]
        parts = [part for part in fabric.switches if part.nodes is not None]
        leaves = [(number, part.name, place) for number, part in enumerate(parts, start=1)
                  for place in range(1, (part.nodes or 0) + 1)]  # fmt: skip
        for group, (number, leaf, place) in zip(groups, leaves, strict=True):
            yield group, leaf, _name(cluster, group, number, place)
        return
    for group, size in sizes.items():
        for index in range(size):
            number, place = divmod(index, fabric.leaf_size or size)
            leaf = f"leaf{number + 1}" if group == MAIN_GROUP else f"{group}-leaf{number + 1}"
            yield group, leaf, _name(cluster, group, number + 1, place + 1)


def _name(cluster: str, group: str, leaf: int, place: int) -> str:
    return f"{cluster}-{leaf}-{place}" if group == MAIN_GROUP else f"{cluster}-{group}-{leaf}-{place}"


def switch_tree_faults(switches: Sequence[SwitchPart], total: int | None) -> Iterator[Trouble]:
    """Yields the faults of an explicit tree. `total` is nodes + spares, None if unknown."""
    troubles = list(_shape_troubles(switches))
    yield from troubles
    sizes = [part.nodes for part in switches if part.nodes is not None]
    if total is not None and sum(sizes) != total:
        yield "", f"the leaf switches have {sum(sizes)} nodes, and nodes + spares is {total}", "make them equal"
    if not troubles:
        yield from _root_troubles(switches)


def _shape_troubles(switches: Sequence[SwitchPart]) -> Iterator[Trouble]:
    names, seen = {part.name for part in switches}, set[str]()
    parents: dict[str, str] = {}
    for index, part in enumerate(switches):
        if (part.nodes is None) == (part.children is None):
            yield (
                f"[{index}]",
                f"{part.name} must have either nodes or children",
                "give nodes for a leaf switch, children for others",
            )
        if part.name in seen:
            yield f"[{index}].name", f"{part.name} is given twice", "give each switch its own name"
        seen.add(part.name)
        for place, child in enumerate(part.children or ()):
            where = f"[{index}].children[{place}]"
            if child not in names:
                yield where, f"switch {child} does not exist", ""
            elif child in parents:
                yield where, f"{child} is a child of {parents[child]} already", "give each switch one parent"
            else:
                parents[child] = part.name


def _root_troubles(switches: Sequence[SwitchPart]) -> Iterator[Trouble]:
    children = {part.name: part.children or [] for part in switches}
    below = {child for items in children.values() for child in items}
    roots = [name for name in children if name not in below]
    if len(roots) > 1:
        found = ", ".join(roots[:8])
        yield "", f"the switches have {len(roots)} roots ({found})", f"add a switch with children: [{found}]"
        return
    reached: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        reached.add(name)
        todo.extend(children[name])
    lost = [name for name in children if name not in reached]
    if lost:
        yield "", f"{', '.join(lost[:8])} form a cycle", "give the tree one root"
