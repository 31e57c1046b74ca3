"""storage: shows a cluster's volumes, the nodes that have them, and their use and speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output import tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain.dataset import format_bytes
from headway.domain.storage.speed_test import DEFAULT_SPEED_TEST_MIB

if TYPE_CHECKING:
    from headway.schemas.storage.volumes import VolumeOut

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Show volumes: nodes, usage, throughput."
)


@app.callback()
def _group() -> None: ...


@app.command("show")
def show_volumes(cluster: ClusterName = None, output: Output = Format.table) -> None:
    """List volumes: nodes that have or lost them, usage, last measured throughput.

    headway storage show lab"""
    api = common.connect()
    found = api.storage.get(common.choose_cluster(api, cluster))
    if output is Format.json:
        print_json(found)
        return
    if found.stale:
        common.print_note(f"the usage of volumes can't be read: {found.stale}")
    for volume in found.volumes:
        if volume.quota_fault:
            common.print_note(f"no quotas: {volume.quota_fault}")
    columns = [
        tables.Column("VOLUME"), tables.Column("TYPE"), tables.Column("USED", right=True), tables.Column("FREE", right=True),
        tables.Column("NODES", right=True), tables.Column("WRITE", right=True), tables.Column("READ", right=True),
        tables.Column("CHECKPOINT", right=True), tables.Column("", shrink=True),
    ]  # fmt: skip
    tables.print_table(columns, [_row(volume) for volume in found.volumes])


def _row(volume: VolumeOut) -> list[tables.Cell]:
    away = "; ".join(f"{lost.node}: {lost.why}" for lost in volume.lost) or (
        f"the head: {volume.fault}" if volume.fault else ""
    )
    speed = volume.measured
    return [
        volume.path,
        volume.type or "-",
        format_bytes(volume.used_bytes) if volume.used_bytes is not None else "-",
        format_bytes(volume.free_bytes) if volume.free_bytes is not None else "-",
        f"{volume.nodes} of {volume.nodes + len(volume.lost)}" if volume.lost else str(volume.nodes),
        *(
            _speed(value)
            for value in ((speed.write_mib_s, speed.read_mib_s, speed.checkpoint_mib_s) if speed else (0.0, 0.0, 0.0))
        ),
        (away, "bad"),
    ]


@app.command("bench")
def bench(
    cluster: ClusterName = None,
    node: Annotated[str, typer.Option("--node", help="Machine to measure from (default: the head).")] = "",
    mib: Annotated[
        int, typer.Option("--mib", min=4, max=65_536, help="MiB to write to each volume.")
    ] = DEFAULT_SPEED_TEST_MIB,
    output: Output = Format.table,
) -> None:
    """Measure write, read and checkpoint throughput of each volume from one machine. Files written are removed.

    headway storage bench lab --node lab-1-1"""
    api = common.connect()
    found = api.storage.benchmark(common.choose_cluster(api, cluster), node=node, mib=mib)
    if output is Format.json:
        print_json(found)
        return
    columns = [
        tables.Column("VOLUME"), tables.Column("WRITE", right=True), tables.Column("READ", right=True),
        tables.Column("CHECKPOINT", right=True), tables.Column("", shrink=True),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            speed.path,
            _speed(speed.write_mib_s),
            _speed(speed.read_mib_s),
            _speed(speed.checkpoint_mib_s),
            (speed.error, "bad"),
        ]
        for speed in found
    ]
    tables.print_table(columns, rows)


def _speed(mib_s: float) -> str:
    return f"{mib_s:.0f} MiB/s" if mib_s else "-"
