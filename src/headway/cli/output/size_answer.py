"""The answer of `headway size` on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import print_rows

if TYPE_CHECKING:
    from headway.sizing.inference import SizedService
    from headway.sizing.training_request import TrainingAnswer

_GIB = 2**30


def print_training(answer: TrainingAnswer, *, explain: bool) -> None:
    """Prints the answer for one GPU type."""
    sized = answer.sized
    run, memory = sized.best.run, sized.best.memory
    shape = run.shape
    active = f", {_billions(shape.active_parameters)} active" if shape.experts else ""
    parts = ", ".join(
        f"{name} {_gib(value)}" for name, value in (
            ("weights", memory.weights), ("gradients", memory.gradients), ("optimizer", memory.optimizer),
            ("activations", memory.activations), ("logits", memory.logits), ("fragmentation", memory.fragmentation),
            ("driver and libraries", memory.context),
        ) if value >= 0.05 * _GIB
    )  # fmt: skip
    speed = (
        f"{sized.tokens_s:,.0f} tokens/s ± {sized.band:.0%}; {sized.best.tokens_s_gpu:,.0f} a GPU, MFU {sized.mfu:.0%}"
    )
    facts: list[tuple[str, tables.Cell]] = [
        ("model", f"{shape.name}: {_billions(shape.parameters)} parameters{active}; {shape.layers} layers of {shape.width}"),
        ("GPUs", f"{run.gpus} {run.gpu.name} on {formatting.plural(run.nodes, 'node')}"),
        ("layout", layout_text(answer)),
        ("memory", f"{_gib(memory.total)} of {_gib(run.gpu.memory_bytes)} GiB a GPU: {parts}"),
        ("throughput", speed),
    ]  # fmt: skip
    if sized.seconds is not None and sized.gpu_hours is not None and sized.kwh is not None:
        low, high = sized.seconds / (1 + sized.band), sized.seconds / (1 - sized.band)
        facts.append(("time", f"{days(sized.seconds)} ({days(low)} to {days(high)}) for {sized.tokens:,.0f} tokens"))
        facts.append(("GPU-hours", f"{sized.gpu_hours:,.0f}"))
        if answer.usd is not None and answer.price is not None:
            facts.append(
                (
                    "price",
                    f"{formatting.usd(answer.usd)} USD, at {answer.price.usd:,.2f} a GPU-hour ({answer.price.origin})",
                )
            )
        facts.append(("energy", f"{sized.kwh:,.0f} kWh"))
    saved = sized.checkpoints
    facts.append((
        "checkpoint",
        f"{saved.size_bytes / _GIB:,.0f} GiB in {saved.write_s:,.0f} s, every {saved.interval_s / 60:,.0f} min; "
        f"{saved.interruptions_a_day:.2g} interruptions a day; both take {saved.lost_share:.1%} of the time",
    ))  # fmt: skip
    tables.print_facts(facts)
    if answer.late_s:
        more = f"; {answer.in_time_gpus} GPUs meet it" if answer.in_time_gpus else ""
        common.print_note(f"the deadline {answer.request.deadline} is missed by {days(answer.late_s)}{more}")
    for reason in sized.outside:
        common.print_note(f"wider band: {reason}")
    if explain:
        common.print_line()
        from headway.sizing.figure_sources import FIGURE_SOURCES

        tables.print_facts(list(FIGURE_SOURCES.items()))


def print_comparison(answers: Sequence[TrainingAnswer]) -> None:
    """Prints a row for each GPU type."""
    columns = [
        tables.Column("GPU"), tables.Column("GPUS", right=True), tables.Column("LAYOUT", shrink=True),
        tables.Column("GIB/GPU", right=True), tables.Column("TOKENS/S", right=True), tables.Column("BAND", right=True),
        tables.Column("TIME", right=True), tables.Column("GPU-HOURS", right=True), tables.Column("USD", right=True),
    ]  # fmt: skip
    print_rows(columns, [_comparison_row(one) for one in answers])


def _comparison_row(answer: TrainingAnswer) -> list[tables.Cell]:
    sized = answer.sized
    run, hours = sized.best.run, sized.gpu_hours
    return [
        run.gpu.name, str(run.gpus), layout_text(answer), _gib(sized.best.memory.total), f"{sized.tokens_s:,.0f}",
        f"±{sized.band:.0%}", "" if sized.seconds is None else days(sized.seconds), "" if hours is None else f"{hours:,.0f}",
        "" if answer.usd is None else formatting.usd(answer.usd),
    ]  # fmt: skip


def print_services(found: Sequence[SizedService], usd_of: Sequence[float | None]) -> None:
    """Prints a row for each GPU type that serves the model. `usd_of`: USD per GPU-hour."""
    columns = [
        tables.Column("GPU"), tables.Column("GPUS/REPLICA", right=True), tables.Column("WEIGHTS GIB", right=True),
        tables.Column("KV GIB", right=True), tables.Column("MOST REQUESTS", right=True), tables.Column("TOKENS/S", right=True),
        tables.Column("MS/TOKEN", right=True), tables.Column("PROMPT S", right=True), tables.Column("REPLICAS", right=True),
        tables.Column("USD/M TOKENS", right=True),
    ]  # fmt: skip
    print_rows(columns, [_service_row(one, usd) for one, usd in zip(found, usd_of, strict=True)])


def _service_row(one: SizedService, usd: float | None) -> list[tables.Cell]:
    return [
        one.gpu.name, str(one.gpus), _gib(one.weights_bytes), _gib(one.cache_bytes), f"{one.most_requests:,}",
        f"{one.tokens_s:,.0f}", f"{one.token_s * 1000:.1f}", f"{one.prompt_s:.2f}", str(one.replicas),
        "" if usd is None else f"{usd * one.gpus / 3600 / one.tokens_s * 1e6:,.2f}",
    ]  # fmt: skip


def layout_text(answer: TrainingAnswer) -> str:
    """Returns the layout in words: `TP 8, PP 4 (2 virtual stages), DP 16, ZeRO-1, microbatch 1 x 32, recompute full`."""
    run = answer.sized.best.run
    layout = run.layout
    words = [f"{name} {value}" for name, value in (("TP", layout.tensor), ("PP", layout.pipeline), ("CP", layout.context),
                                                   ("EP", layout.expert)) if value > 1]  # fmt: skip
    if layout.virtual_stages > 1:
        words.append(f"{layout.virtual_stages} virtual stages")
    words.append(f"DP {run.data_parallel}")
    words.append({"fsdp": "FSDP", "zero1": "ZeRO-1", "ddp": "DDP"}[layout.shard])
    words.append(f"microbatch {layout.microbatch} x {layout.microbatches}")
    words.append(f"recompute {layout.recompute}")
    return ", ".join(words)


def days(seconds: float) -> str:
    """Returns a time as `2.3 hours` or `14.5 days`."""
    if seconds < 86_400:
        return f"{seconds / 3600:,.1f} hours"
    return f"{seconds / 86_400:,.1f} days"


def _gib(value: float) -> str:
    return f"{value / _GIB:,.1f}"


def _billions(count: int) -> str:
    return f"{count / 1e9:,.2f} billion"
