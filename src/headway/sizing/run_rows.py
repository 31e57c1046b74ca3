"""Rows of CSV files to trainings: the published runs, and files of `headway size --rows`.

Columns as data/published_runs.csv has them: src, model, n (parameters), d (width), L (layers), seq, gpus, gpu, mem (GB), tp, pp,
vp, cp, ep, mbs, m (microbatches of a step), gbs (sequences of a step), recompute, shard, vocab, kvf (kv heads / heads), ffn
(gelu4, swiglu); also heads, kv_heads, ffn_width, experts, top_k, precision, sp, attention, gpus_per_node. Only model or d and L,
seq, gpus and gpu must be there."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

from headway.catalog.gpu_types import GPU_TYPES, GpuType, find_gpu_type
from headway.sizing.models.model_shape import ModelShape
from headway.sizing.models.usual_shapes import find_known_shape, usual_shape
from headway.sizing.training_run import ATTENTION, RECOMPUTE, Layout, TrainingRun

# FlashAttention (2205.14135) and sequence parallelism (2205.05198) were published in May 2022: papers before had neither.
_MAY_2022 = 2205
_FIRST_FLASH = ("llm-foundry",)  # sources of runs with the first FlashAttention
_NAMES = {
    "layers": "L", "num_layers": "L", "n_layers": "L", "hidden": "d", "width": "d", "hidden_size": "d", "d_model": "d",
    "sequence": "seq", "seq_len": "seq", "sequence_length": "seq", "context": "seq", "params": "n", "parameters": "n",
    "n_params": "n", "n_heads": "heads", "num_heads": "heads", "kv_head": "kv_heads", "n_kv_heads": "kv_heads",
    "num_kv_heads": "kv_heads", "d_ff": "ffn_width", "ffn_hidden": "ffn_width", "intermediate_size": "ffn_width",
    "n_experts": "experts", "num_experts": "experts", "moe_experts": "experts", "experts_of_token": "top_k", "topk": "top_k",
    "experts_per_token": "top_k", "active_experts": "top_k", "dtype": "precision", "prec": "precision", "vocabulary": "vocab",
    "vocab_size": "vocab", "micro_batch": "mbs", "microbatch": "mbs", "global_batch": "gbs", "num_gpus": "gpus", "n_gpus": "gpus",
    "gpu_type": "gpu", "source": "src", "zero": "shard", "sharding": "shard", "ac": "recompute", "tensor": "tp", "pipeline": "pp",
}  # fmt: skip
_PRECISIONS = {"fp32": "fp32", "tf32": "fp32", "bf16": "bf16", "fp16": "bf16", "amp_bf16": "bf16", "fp8": "fp8", "amp_fp8": "fp8",
               "mxfp8": "fp8", "float8": "fp8", "fp4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4"}  # fmt: skip
_RECOMPUTE_WORDS = {
    "": "none", "no": "none", "false": "none", "0": "none", "off": "none", "yes": "full", "true": "full", "1": "full",
    "block": "full", "attention": "selective", "core_attn": "selective", "op": "selective", "partial": "selective",
}  # fmt: skip
_WIDEST = 7  # feed-forward width of dense models, in widths of the model
_LARGEST = 1e15


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A published run. `tokens_s_gpu`: measured tokens per second and GPU."""

    source: str
    run: TrainingRun
    tokens_s_gpu: float


class RowError(Exception):
    """A row cannot be answered; the text names the column."""


def published_runs() -> list[MeasuredRun]:
    """Returns the rows of data/published_runs.csv."""
    text = files("headway.sizing").joinpath("data/published_runs.csv").read_text(encoding="utf-8")
    return [
        MeasuredRun(row["src"], training_run(row), float(row["tok_s_gpu"])) for row in csv.DictReader(text.splitlines())
    ]


def training_run(row: Mapping[str, str | None]) -> TrainingRun:
    """Returns the training that a row describes. Raises RowError with the column that is missing or impossible."""
    cells = _Cells({_column(name): value.strip() for name, value in row.items() if name and isinstance(value, str)})
    gpu_name = cells.text("gpu")
    gpu = find_gpu_type(gpu_name, cells.number("mem", 0))
    if gpu is None:
        raise RowError(f"gpu: {gpu_name or 'nothing'!r} is not known; known are {', '.join(GPU_TYPES)}")
    sequence, gpus = cells.whole("seq"), cells.whole("gpus")
    shape = _shape(cells)
    per_node = cells.whole("gpus_per_node", gpu.gpus_per_node)
    published = _paper_month(cells.text("src"))
    precision = _PRECISIONS.get(
        cells.text("precision").lower() or ("fp8" if "fp8" in cells.text("model").lower() else "bf16"), ""
    )
    if not precision:
        raise RowError(f"precision: {cells.text('precision')!r} is not one of {', '.join(sorted(set(_PRECISIONS)))}")
    if precision not in gpu.peak_flops:
        raise RowError(f"precision: {gpu.name} has no {precision}; it has {', '.join(gpu.peak_flops)}")
    layout = _layout(cells, gpus, sequence, published)
    if layout.pipeline > shape.layers:
        raise RowError(f"pp: {layout.pipeline} stages are more than {shape.layers} layers")
    attention = cells.text("attention").lower() or _usual_attention(gpu, layout, cells.text("src"))
    if attention not in ATTENTION:
        raise RowError(f"attention: {attention!r} is not one of {', '.join(ATTENTION)}")
    return TrainingRun(shape, sequence, gpu, gpus, layout, precision, per_node, attention)


def _usual_attention(gpu: GpuType, layout: Layout, source: str) -> str:
    """Returns the program that computes attention in most trainings: version 3 and cuDNN's are Hopper's and later GPUs', and
    PyTorch's FSDP is mostly used with PyTorch's own, which is version 2."""
    if 0 < _paper_month(source) <= _MAY_2022:
        return "unfused"
    if source in _FIRST_FLASH:
        return "flash1"
    return "flash2" if gpu.generation in ("ampere", "ada", "cdna3") or layout.shard == "fsdp" else "flash3"


def _shard(word: str) -> str:
    if "fsdp" in word or "hsdp" in word or re.fullmatch(r"(zero)?[ _-]?3", word):
        return "fsdp"
    if word.startswith("zero") or "dist" in word or word in ("1", "2"):
        return "zero1"
    if word in ("ddp", "dp", "none", "no", "0"):
        return "ddp"
    raise RowError(f"shard: {word!r} is not one of fsdp, zero1, ddp")


def _column(name: str) -> str:
    word = name.strip()
    return _NAMES.get(word.lower(), word if word == "L" else word.lower())


class _Cells:
    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def number(self, name: str, default: float | None = None) -> float:
        """Returns a number >= 0. Raises RowError if it is missing without default, no number, negative, or too large."""
        text = self.values.get(name, "").replace("_", "")
        if not text:
            if default is None:
                raise RowError(f"{name}: is missing")
            return default
        try:
            found = float(text)
        except ValueError:
            raise RowError(f"{name}: {text!r} is not a number") from None
        if not 0 <= found <= _LARGEST:
            raise RowError(f"{name}: {text} is out of range")
        return found

    def whole(self, name: str, default: int | None = None) -> int:
        """Returns a whole number >= 1. Raises RowError otherwise."""
        found = self.number(name, default)
        if found < 1 or found != int(found):
            raise RowError(f"{name}: {found:g} is not a whole number of at least 1")
        return int(found)


def _paper_month(source: str) -> int:
    """Returns year and month of an arXiv number ("2104.04473" -> 2104), 0 for other sources."""
    match = re.search(r"\b(\d{4})\.\d{4,5}\b", source)
    return int(match[1]) if match else 0


def _shape(cells: _Cells) -> ModelShape:
    known = find_known_shape(cells.text("model"))
    total = cells.number("n", 0)
    if not cells.text("d") or not cells.text("L"):
        if known is not None:
            return known
        found = usual_shape(total) if total else None
        if found is None:
            raise RowError("model: give d and L, or n between 10 million and 2 trillion, or a known model")
        return found
    width, layers = cells.whole("d"), cells.whole("L")
    if known is not None and (known.width, known.layers) != (width, layers):
        known = None
    head_width = known.head_width if known else (128 if width % 128 == 0 and width >= 1536 else 64)
    heads = cells.whole("heads", known.heads if known else max(1, width // head_width))
    if not known:
        head_width = max(1, width // heads)
    share = cells.number("kvf", (known.kv_heads / known.heads) if known else 1.0) or 1.0
    kv_heads = cells.whole("kv_heads", max(1, round(heads * min(1.0, share))))
    gated = cells.text("ffn").lower().startswith(("swiglu", "geglu", "glu", "gated")) or (
        not cells.text("ffn") and known is not None and known.gated
    )
    experts = int(cells.number("experts", known.experts if known else 0))
    if experts <= 1:
        experts = 0
    top_k = cells.whole("top_k", (known.experts_of_token if known and known.experts else 2)) if experts else 0
    if kv_heads > heads or top_k > max(1, experts):
        column, few, many = ("kv_heads", kv_heads, heads) if kv_heads > heads else ("top_k", top_k, experts)
        raise RowError(f"{column}: {few} is more than {many}")
    vocabulary = cells.whole("vocab", known.vocabulary if known else 50304)
    ffn = cells.whole("ffn_width", known.ffn_width if known else 4 * width)
    shape = ModelShape(cells.text("model"), layers, width, heads, kv_heads, head_width, ffn, vocabulary, gated, experts, top_k,
                       known.shared_experts if known else 0, tied_embeddings=not gated)  # fmt: skip
    if known is None and not cells.text("ffn_width") and (gated or experts):
        return _with_ffn(shape, total)
    return shape


def _with_ffn(shape: ModelShape, total: float) -> ModelShape:
    """Returns the shape with the feed-forward width that `total` parameters leave. More than a dense model of this width can
    have are a mixture: of as many experts as the name says ("8x7b"), else of eight, two of them for each token."""
    guess = replace(shape, ffn_width=-(-8 * shape.width // 3 // 256) * 256 if shape.gated else 4 * shape.width)
    if not total:
        return guess
    named = re.search(r"(\d+)x\d", shape.name.lower())
    others = shape.attention_parameters + 2 * shape.width
    width = (total - shape.embedding_parameters) / shape.layers - others
    width /= shape.width * (3 if shape.gated else 2)
    if not shape.experts and width > _WIDEST * shape.width:
        experts = int(named[1]) if named and int(named[1]) > 1 else 8
        shape = replace(guess, experts=experts, experts_of_token=2)
    width /= max(1, shape.experts + shape.shared_experts)
    if shape.experts or shape.width <= width <= _WIDEST * shape.width:
        return replace(shape, ffn_width=max(64, round(width / 64) * 64))
    return guess


def _layout(cells: _Cells, gpus: int, sequence: int, published: int) -> Layout:
    tensor, pipeline, context = cells.whole("tp", 1), cells.whole("pp", 1), cells.whole("cp", 1)
    if gpus % (tensor * pipeline * context):
        raise RowError(f"gpus: {gpus} is not a multiple of tp x pp x cp = {tensor * pipeline * context}")
    if context > sequence:
        raise RowError(f"cp: {context} is more than the {sequence} tokens of a sequence")
    copies = gpus // (tensor * pipeline * context)
    microbatch = cells.whole("mbs", 1)
    batch = cells.number("gbs", 0)
    microbatches = cells.whole("m", max(1, round(batch / copies / microbatch)) if batch else 1)
    recompute = cells.text("recompute").lower()
    recompute = _RECOMPUTE_WORDS.get(recompute, recompute)
    if recompute not in RECOMPUTE:
        raise RowError(f"recompute: {recompute!r} is not one of {', '.join(RECOMPUTE)}")
    shard = _shard(cells.text("shard").lower() or ("fsdp" if tensor * pipeline == 1 else "zero1"))
    sequence_parallel = cells.text("sp").lower() not in ("0", "no", "false") and not 0 < published < _MAY_2022
    return Layout(
        tensor, pipeline, cells.whole("vp", 1), context, cells.whole("ep", 1), microbatch, microbatches, recompute, shard,
        sequence_parallel and (recompute != "full" or published != _MAY_2022),
    )  # fmt: skip
