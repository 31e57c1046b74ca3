"""What the page of sizes shows: figures with formula and source, memory by part, the layout in words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headway.schemas.billing.sizes import LayoutOut, SizeOut
from headway.web.views.state_wording import count

_GIB = 2**30
_MEMORY = ("weights", "gradients", "optimizer", "activations", "logits", "fragmentation", "context")
# Options of the command, which errors name, in the words of the form.
_FIELDS = {
    "gpus": "GPUs", "nodes": "nodes", "gpus-per-node": "GPUs per node", "task": "task", "tokens": "tokens", "batch": "batch",
    "deadline": "deadline", "sequence": "sequence", "precision": "precision", "optimizer": "optimizer", "price": "price",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SizeFigure:
    """A figure of the answer. `source`: its formula and where that is from."""

    name: str
    text: str
    more: str
    source: str


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """A part of a GPU's memory: GiB, and its share of all memory. `kind` is the end of its class."""

    name: str
    kind: str
    gib: float
    share: float


def size_figures(found: SizeOut) -> list[SizeFigure]:
    """Returns the figures in the order of the page."""
    figures = [
        ("GPUs", f"{found.gpus:,} {found.gpu}", count(found.nodes, "node"), "layout"),
        ("Throughput", f"{found.tokens_s:,.0f} tokens/s", f"± {found.band:.0%}; {found.tok_s_gpu:,.0f} a GPU", "throughput"),
        ("MFU", f"{found.mfu:.0%}", "of the peak of the data sheet", "MFU"),
    ]  # fmt: skip
    if found.seconds is not None and found.gpu_hours is not None and found.kwh is not None:
        low, high = found.seconds / (1 + found.band), found.seconds / (1 - found.band)
        figures.append(("Time", days(found.seconds), f"{days(low)} to {days(high)}", "days"))
        figures.append(("GPU-hours", f"{found.gpu_hours:,.0f}", f"{found.tokens:,.0f} tokens", "days"))
        if found.usd is not None:
            price = f"{found.usd_per_gpu_hour:,.2f} a GPU-hour: {found.price_origin}"
            figures.append(("Price", f"{found.usd:,.0f} USD", price, "price"))
        figures.append(("Energy", f"{found.kwh:,.0f} kWh", "of the site", "energy"))
    saved = found.checkpoint
    every = f"{saved.size_bytes / _GIB:,.0f} GiB, written in {saved.write_s:,.0f} s"
    figures.append(("Checkpoint", f"every {saved.interval_s / 60:,.0f} min", every, "checkpoint"))
    a_day = f"{saved.interruptions_a_day:.2g} a day"
    figures.append(
        ("Interruptions", a_day, f"take {saved.lost_share:.1%} of the time with checkpoints", "interruptions")
    )
    return [SizeFigure(name, text, more, found.sources[key]) for name, text, more, key in figures]


def memory_parts(found: SizeOut) -> list[MemoryPart]:
    """Returns the parts of one GPU's memory, with the free rest as the last."""
    memory = found.memory_bytes
    parts = [(name.replace("context", "driver and libraries"), name, getattr(memory, name)) for name in _MEMORY]
    parts.append(("free", "free", max(0.0, memory.gpu - memory.total)))
    shown = (part for part in parts if part[2] >= 0.05 * _GIB)
    return [MemoryPart(name, kind, value / _GIB, value / memory.gpu) for name, kind, value in shown]


def layout_rows(layout: LayoutOut) -> list[tuple[str, str]]:
    """Returns what divides the training, without what is not used."""
    rows = [
        ("Tensor parallel", layout.tensor), ("Pipeline stages", layout.pipeline), ("Virtual stages", layout.virtual_stages),
        ("Context parallel", layout.context), ("Expert parallel", layout.expert),
    ]  # fmt: skip
    shard = {"fsdp": "FSDP: weights, gradients, optimizer", "zero1": "ZeRO-1: the optimizer", "ddp": "DDP: nothing"}
    return [
        *((name, str(value)) for name, value in rows if value > 1),
        ("Data-parallel copies", str(layout.data)), ("Copies share", shard[layout.shard]),
        ("Microbatch", f"{count(layout.microbatch, 'sequence')}, {layout.microbatches} in a step"),
        ("Recomputation", layout.recompute),
    ]  # fmt: skip


def in_words_of_the_form(text: str) -> str:
    """Returns an error's text with the form's names in place of the command's options."""
    text = re.sub(r"--gpus (\d+)", r"\1 GPUs", text)
    return re.sub(r"--([a-z-]+)", lambda match: _FIELDS.get(match[1], match[0]), text)


def days(seconds: float) -> str:
    """Returns a time as `2.3 hours` or `14.5 days`."""
    return f"{seconds / 3600:,.1f} hours" if seconds < 86_400 else f"{seconds / 86_400:,.1f} days"
