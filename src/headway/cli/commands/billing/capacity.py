"""capacity: use of the GPUs, and queue waits."""

from __future__ import annotations

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.options.month_option import Month
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_for_programs, print_rows


def capacity(cluster: ClusterName = None, period: Month = "", output: Output = Format.table) -> None:
    """Report GPU utilisation, fragmentation of free GPUs, and queue waits by job size."""
    api = common.connect()
    found = api.billing.capacity(common.choose_cluster(api, cluster), period)
    if print_for_programs(found, output):
        return
    for gpu_type in found.types:
        busiest = max(
            gpu_type.hours, key=lambda hour: hour.allocated / hour.present if hour.present else 0, default=None
        )
        words = f"{gpu_type.gpu_type}: {formatting.share(gpu_type.utilisation)} allocated"
        if busiest is not None and busiest.present:
            allocated_share = formatting.share(busiest.allocated / busiest.present)
            words += f", {allocated_share} in the fullest hour ({formatting.local_time(busiest.at)})"
        common.print_line(words)
        if gpu_type.fragmentation is not None:
            worst = max(gpu_type.hours, key=lambda hour: hour.fragmented)
            share = formatting.share(gpu_type.fragmentation)
            words = f"{gpu_type.gpu_type}: {share} of the free GPU-hours on nodes that also ran a job"
            if worst.fragmented:
                words += f", most in the hour of {formatting.local_time(worst.at)} ({worst.fragmented:,.2f} of {worst.free:,.2f})"
            common.print_line(words)
    common.print_line(
        f"free now: {found.free_gpus} GPUs, {found.free_whole_node_gpus} of them on completely free nodes "
        f"({formatting.share(found.fragmentation)} fragmented)"
    )
    if found.waits:
        common.print_line()
    columns = [
        tables.Column("JOBS OF"),
        *(tables.Column(word, right=True) for word in ("RUNS", "HALF WAIT", "90 %", "99 %")),
    ]
    rows: list[list[tables.Cell]] = [
        [row.size, f"{row.runs:,}", *(formatting.duration(wait or 0) for wait in (row.p50_s, row.p90_s, row.p99_s))]
        for row in found.waits
    ]
    print_rows(columns, rows)
