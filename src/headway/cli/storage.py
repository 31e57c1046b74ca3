"""storage: how fast a cluster's volumes are."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli import session, show
from headway.cli.session import ClusterName, Format, Output

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="A cluster's volumes.")


@app.callback()
def _group() -> None: ...


@app.command("bench")
def bench(
    cluster: ClusterName = "",
    node: Annotated[str, typer.Option("--node", help="From this machine; the head unless said.")] = "",
    mib: Annotated[int, typer.Option("--mib", min=4, max=65_536, help="MiB written to each volume.")] = 256,
    output: Output = Format.table,
) -> None:
    """Write, read and checkpoint throughput of each volume, from one machine. What it writes is removed.

    headway storage bench lab --node lab-1-1"""
    api = session.connect()
    found = api.storage_bench(session.pick(api, cluster), node=node, mib=mib)
    if output is Format.json:
        session.print_json(found)
        return
    columns = [
        show.Column("VOLUME"), show.Column("WRITE", right=True), show.Column("READ", right=True),
        show.Column("CHECKPOINT", right=True), show.Column("", shrink=True),
    ]  # fmt: skip
    rows: list[list[show.Cell]] = [
        [one.path, _speed(one.write_mib_s), _speed(one.read_mib_s), _speed(one.checkpoint_mib_s), (one.error, "bad")]
        for one in found
    ]
    for line in show.table(columns, rows, show.screen()):
        session.say(line)


def _speed(mib_s: float) -> str:
    return f"{mib_s:.0f} MiB/s" if mib_s else "-"
