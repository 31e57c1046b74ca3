"""fault: injects a fault into a test cluster, or removes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain.injected_fault import ON_NODES, RECLAIM_IN_S, Daemon, FaultKind

if TYPE_CHECKING:
    from headway.schemas.nodes.incidents import FaultIn


def fault(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CLUSTER] KIND [XID | DAEMON] [NODE]",
            help=f"KIND: {', '.join(FaultKind)}. DAEMON: {', '.join(Daemon)}.",
        ),
    ],
    gpu: Annotated[int, typer.Option("--gpu", min=0, help="Index of the GPU, for faults of one GPU.")] = 0,
    text: Annotated[str, typer.Option("--text", help="The driver's message (xid).")] = "",
    in_s: Annotated[
        int, typer.Option("--in", min=0, max=86400, help="Seconds until the provider reclaims the machine (reclaim).")
    ] = RECLAIM_IN_S,
    heal: Annotated[bool, typer.Option("--heal", help="Remove the fault.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Allow it on machines that are not local.")] = False,
    output: Output = Format.table,
) -> None:
    """Inject a fault into a local cluster, to test its recovery; --heal removes it.

    headway fault xid 79 lab-1-2 --gpu 3
    headway fault lab freeze-node lab-1-2
    headway fault kill-node lab-head
    headway fault lab reclaim lab-spot-1-1 --in 60
    headway fault kill slurmctld"""
    cluster, request = parse(words, gpu=gpu, text=text, in_s=in_s, heal=heal, force=force)
    api = common.connect()
    done = api.nodes.inject_fault(common.choose_cluster(api, cluster), request)
    if output is Format.json:
        print_json(done)
    else:
        common.print_line(done.done)


def parse(words: list[str], **options: Any) -> tuple[str | None, FaultIn]:
    """Returns (cluster or None, request). Raises BadParameter."""
    from headway.schemas.nodes.incidents import FaultIn

    kinds = list(FaultKind)
    cluster, rest = (
        (None, words) if words[0] in kinds and (len(words) < 2 or words[1] not in kinds) else (words[0], words[1:])
    )
    if not rest or rest[0] not in kinds:
        raise typer.BadParameter(f"give a fault: {', '.join(kinds)}")
    kind, more = FaultKind(rest[0]), rest[1:]
    code, daemon = 0, None
    if kind is FaultKind.XID and more and more[0].isascii() and more[0].isdigit() and len(more[0]) <= 4:
        code, more = int(more[0]), more[1:]
    elif kind is FaultKind.XID and not options.get("heal"):
        raise typer.BadParameter("give the XID as a number, such as 79")
    if kind is FaultKind.KILL:
        if not more or more[0] not in list(Daemon):
            raise typer.BadParameter(f"give a daemon: {', '.join(Daemon)}")
        daemon, more = Daemon(more[0]), more[1:]
    on_node = daemon is None or daemon in ON_NODES
    if len(more) != on_node:
        raise typer.BadParameter("give one node" if on_node else f"{daemon} runs on the head: give no node")
    return cluster, FaultIn(kind=kind, node=more[0] if on_node else "", code=code, daemon=daemon, **options)
