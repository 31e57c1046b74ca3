"""Reservations that Headway makes: spares, flaky nodes, and nodes under test."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headway.domain.machines.machine import Machine
from headway.domain.slurm.hostlist import compress, expand
from headway.domain.slurm.nodes_and_jobs import FLAKY_NODES, SPARES
from headway.errors import CommandFailed
from headway.slurm.scontrol import run_scontrol
from headway.transport.ssh import Remote

# IGNORE_JOBS: the reservation may cover nodes with running jobs and does not disturb them. OVERLAP: a user's own reservation,
# for tomorrow say, may name any node, and a flaky node may just have been a spare. Not MAINT: sinfo would show a healthy spare as
# being under maintenance; without it sinfo writes "resv".
_FLAGS = "Flags=IGNORE_JOBS,OVERLAP"
_OPTIONS = {SPARES: ("Users=root", "StartTime=now"), FLAKY_NODES: ("Accounts=root", "StartTime=now")}
_NO_END = "EndTime=2100-01-01"  # Slurm takes "infinite" for one year: the spares would then become ordinary nodes
_TEST_MINUTES = 4  # then Slurm removes the reservation by itself
_IN_USE = "reservation is in use"
_NODES = re.compile(r"\bNodes=(\S+)")


async def reserved_nodes(connections: Remote, head: Machine, name: str = SPARES) -> tuple[str, ...]:
    """Returns the nodes of this reservation; () when it does not exist."""
    ran = await run_scontrol(connections, head, "--oneliner", "show", "reservation", name, check=False)
    if ran.code != 0:
        if "not found" in (ran.stdout + ran.stderr).lower():
            return ()
        raise CommandFailed(ran.argv, ran.code, ran.stderr or ran.stdout, where=head.name)
    match = _NODES.search(ran.stdout)
    return tuple(expand(match[1])) if match and match[1] != "(null)" else ()


async def set_reserved_nodes(connections: Remote, head: Machine, names: Sequence[str], name: str = SPARES) -> None:
    """Makes the reservation cover exactly these nodes; deletes it when there are none. Running jobs are not disturbed.

    Slurm refuses to delete a reservation that a job names; then it stays, and the next call deletes it."""
    reserved = await reserved_nodes(connections, head, name)
    if set(reserved) == set(names):
        return
    if not names:
        ran = await run_scontrol(connections, head, "delete", f"ReservationName={name}", check=False)
        if ran.code != 0 and _IN_USE not in ran.stderr.lower():
            raise CommandFailed(ran.argv, ran.code, ran.stderr or ran.stdout, where=head.name)
        return
    what = (f"ReservationName={name}", f"Nodes={compress(names)}", _NO_END, _FLAGS)
    if reserved:
        await run_scontrol(connections, head, "update", "reservation", *what)
    else:
        await run_scontrol(connections, head, "create", "reservation", *what, *_OPTIONS[name])


async def reserve_for_test(connections: Remote, head: Machine, node: str) -> None:
    """Keeps jobs from starting on the node for a few minutes, or until `end_test_reservation`."""
    what = (f"ReservationName={_test_name(node)}", f"Nodes={node}", "StartTime=now", f"Duration={_TEST_MINUTES}")
    await run_scontrol(connections, head, "create", "reservation", *what, "Users=root", _FLAGS)


async def end_test_reservation(connections: Remote, head: Machine, node: str) -> None:
    """Deletes the reservation that `reserve_for_test` made."""
    await run_scontrol(connections, head, "delete", f"ReservationName={_test_name(node)}", check=False)


def _test_name(node: str) -> str:
    return f"headway_test_{node}"
