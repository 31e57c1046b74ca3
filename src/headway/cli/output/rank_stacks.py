"""Prints the stacks of a job's ranks: ranks at the same place together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli import common
from headway.cli.output.terminal import without_control_characters
from headway.domain.slurm.hostlist import compress, compress_numbers

if TYPE_CHECKING:
    from headway.schemas.jobs import JobStacksOut

_FRAMES = 12  # innermost frames that are printed; -o json has all


def print_rank_stacks(found: JobStacksOut) -> None:
    """Prints the verdict, then each distinct stack with its ranks, the rarest first."""
    if found.verdict:
        common.print_line(without_control_characters(found.verdict))
    groups: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for stack in found.stacks:
        groups.setdefault(tuple(stack.frames), []).append((stack.rank, stack.node))
    for frames, members in sorted(groups.items(), key=lambda group: len(group[1])):
        ranks = compress_numbers(tuple(sorted(rank for rank, _ in members)))
        nodes = compress(dict.fromkeys(node for _, node in members))
        common.print_line(f"rank {ranks} on {nodes}")
        for frame in frames[:_FRAMES] or ("no Python stack",):
            common.print_line(f"    {without_control_characters(frame)}")
        if len(frames) > _FRAMES:
            common.print_line(f"    ... {len(frames) - _FRAMES} more")
    for node, text in found.nccl.items():
        common.print_line(f"NCCL on {node}:")
        for line in text.splitlines():
            common.print_line(f"    {without_control_characters(line)}")
    for node, error in found.errors.items():
        common.print_note(f"  {node}: {without_control_characters(error)}")
    if not found.stacks:
        common.print_note(
            "  no rank was found: only processes with RANK in their environment are ranks (torchrun sets it)"
        )
