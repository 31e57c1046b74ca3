"""From fabric to slots and switches. A slot's name carries its leaf: lab-2-3 is place 3 under leaf 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.domain.cluster import Slot, Switch
from headway.spec.model import FabricPart, SwitchPart

SPINE = "spine"
Trouble = tuple[str, str, str]  # path under fabric, message, hint


def lay_out(cluster: str, fabric: FabricPart, total: int) -> tuple[tuple[Slot, ...], tuple[Switch, ...]]:
    """Slots in leaf order and the switches above them; no switches where there is one leaf. `fabric` has no trouble."""
    sizes = list(_leaf_sizes(fabric, total))
    slots: list[Slot] = []
    leaves: list[Switch] = []
    for number, (leaf, size) in enumerate(sizes, start=1):
        names = tuple(f"{cluster}-{number}-{place}" for place in range(1, size + 1))
        slots += [Slot(name, leaf, len(slots) + place) for place, name in enumerate(names, start=1)]
        leaves.append(Switch(leaf, nodes=names))
    if len(leaves) == 1:
        return tuple(slots), ()
    if fabric.switches is None:
        return tuple(slots), (*leaves, Switch(SPINE, children=tuple(leaf.name for leaf in leaves)))
    above = [Switch(part.name, children=tuple(part.children)) for part in fabric.switches if part.children]
    return tuple(slots), (*leaves, *above)


def _leaf_sizes(fabric: FabricPart, total: int) -> Iterator[tuple[str, int]]:
    if fabric.switches is not None:
        yield from ((part.name, part.nodes) for part in fabric.switches if part.nodes is not None)
        return
    size = fabric.leaf_size or total
    for number, first in enumerate(range(0, total, size), start=1):
        yield f"leaf{number}", min(size, total - first)


def tree_troubles(switches: Sequence[SwitchPart], total: int | None) -> Iterator[Trouble]:
    """What is wrong with an explicit tree. `total` is nodes + spares, None when they are not known."""
    troubles = list(_shape_troubles(switches))
    yield from troubles
    sizes = [part.nodes for part in switches if part.nodes is not None]
    if total is not None and sum(sizes) != total:
        yield "", f"the leaves have {sum(sizes)} nodes, and nodes + spares is {total}", "make them equal"
    if not troubles:
        yield from _root_troubles(switches)


def _shape_troubles(switches: Sequence[SwitchPart]) -> Iterator[Trouble]:
    names = [part.name for part in switches]
    parents: dict[str, str] = {}
    for index, part in enumerate(switches):
        if (part.nodes is None) == (part.children is None):
            yield f"[{index}]", f"{part.name} must have either nodes or children", "leaves have nodes"
        if part.name in names[:index]:
            yield f"[{index}].name", f"{part.name} is there twice", "give each switch its own name"
        for place, child in enumerate(part.children or ()):
            where = f"[{index}].children[{place}]"
            if child not in names:
                yield where, f"there is no switch {child}", ""
            elif child in parents:
                yield where, f"{child} hangs under {parents[child]} already", "a switch has one parent"
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
        yield "", f"{', '.join(lost[:8])} hang under each other in a circle", "a tree has one root"
