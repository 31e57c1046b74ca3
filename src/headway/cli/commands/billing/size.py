"""size: memory, layout, throughput and price of training or serving a model. No server is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.output import formatting, size_answer, tables
from headway.cli.output.output_formats import Format, Output, print_json, print_rows
from headway.errors import NotFound, Refused
from headway.sizing.training_run import OPTIMIZERS, PRECISIONS, TASKS

if TYPE_CHECKING:
    from headway.catalog.gpu_types import GpuType
    from headway.sizing.models.model_shape import ModelShape

_GB = 1e9
_MAX_CONFIG = 1_000_000


def size(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="A size (70b), a known model (llama-3-8b), a config.json or its folder."),
    ] = "",
    gpu: Annotated[list[str] | None, typer.Option("--gpu", help="GPU type; repeat to compare. Default: h100.")] = None,
    gpus: Annotated[int, typer.Option("--gpus", min=0, max=100_000, help="Number of GPUs (default: as few as do it).")] = 0,
    nodes: Annotated[int, typer.Option("--nodes", min=0, max=20_000, help="Number of nodes, instead of --gpus.")] = 0,
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", min=0, max=72, help="GPUs of a node.")] = 0,
    task: Annotated[str, typer.Option("--task", help=f"One of {', '.join(TASKS)}, inference.")] = "pretrain",
    tokens: Annotated[str, typer.Option("--tokens", metavar="COUNT", help="Tokens to train on: 300B, 1.4T.")] = "",
    deadline: Annotated[
        str, typer.Option("--deadline", metavar="TIME", help="Time until the end of the training: 36h, 14d, 6w."),
    ] = "",
    sequence: Annotated[
        int, typer.Option("--sequence", min=1, max=10_000_000, help="Tokens of a sequence; of a request with its answer."),
    ] = 4096,
    precision: Annotated[str, typer.Option("--precision", help=f"One of {', '.join(PRECISIONS)}.")] = "bf16",
    optimizer: Annotated[str, typer.Option("--optimizer", help=f"One of {', '.join(OPTIMIZERS)}.")] = "adamw",
    batch: Annotated[str, typer.Option("--batch", metavar="COUNT", help="Tokens of a step (default: by the model's size).")] = "",
    layers: Annotated[int, typer.Option("--layers", min=0, help="Layers; with --width instead of MODEL.")] = 0,
    width: Annotated[int, typer.Option("--width", min=0, help="Width of the model.")] = 0,
    heads: Annotated[int, typer.Option("--heads", min=0, help="Heads of attention.")] = 0,
    kv_heads: Annotated[int, typer.Option("--kv-heads", min=0, help="Key-value heads.")] = 0,
    ffn_width: Annotated[int, typer.Option("--ffn-width", min=0, help="Width of the feed-forward part, or of an expert.")] = 0,
    vocabulary: Annotated[int, typer.Option("--vocabulary", min=0, help="Tokens of the vocabulary.")] = 0,
    experts: Annotated[int, typer.Option("--experts", min=0, help="Experts of a mixture.")] = 0,
    experts_of_token: Annotated[int, typer.Option("--experts-of-token", min=0, help="Experts for each token.")] = 0,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=100_000, help="Requests at a time of a replica (inference)."),
    ] = 16,
    rate: Annotated[float, typer.Option("--rate", min=0, help="Tokens per second of all replicas (inference).")] = 0,
    price: Annotated[
        float, typer.Option("--price", min=0, max=1000, help="USD per GPU-hour (default: the lowest on-demand price known)."),
    ] = 0,
    sbatch: Annotated[bool, typer.Option("--sbatch", help="Print a batch script with the layout.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print the formula and source of each figure.")] = False,
    rows: Annotated[
        Path | None,
        typer.Option("--rows", metavar="FILE", help="Answer each row of a CSV file of trainings; - for standard input."),
    ] = None,
    output: Output = Format.table,
) -> None:  # fmt: skip
    """Predict how many GPUs a model needs, for how long, at what price: memory, layout, throughput with a band.

    headway size llama-3-8b --gpu h100 --gpus 64 --tokens 1T
    headway size 70b --gpu h100 --gpu h200 --tokens 2T --deadline 30d
    headway size 70b --task inference --precision fp8 --concurrency 64
    headway size --rows runs.csv -o json"""
    if rows is not None:
        if model:
            raise Refused("MODEL and --rows contradict each other", hint="the file's rows name their models")
        _answer_rows(rows, output)
        return
    figures = {
        "layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads, "ffn_width": ffn_width, "vocabulary": vocabulary,
        "experts": experts, "experts_of_token": experts_of_token,
    }  # fmt: skip
    shape = _shape(model, {name: value for name, value in figures.items() if value})
    types = [_gpu_type(name) for name in gpu or ["h100"]]
    for one in types:
        if precision not in one.peak_flops and precision in PRECISIONS:
            raise Refused(f"{one.name} has no {precision}", hint=f"it has {', '.join(one.peak_flops)}")
    _one_of("--precision", precision, PRECISIONS)
    _one_of("--optimizer", optimizer, OPTIMIZERS)
    _one_of("--task", task, (*TASKS, "inference"))
    if task == "inference":
        _refuse_for_inference(tokens, deadline, sbatch=sbatch)
        _print_services(shape, types, gpus, precision, sequence, concurrency, rate, price, output, explain=explain)
        return
    from headway.sizing.batch_script import batch_script
    from headway.sizing.training_request import TrainingRequest, answer_training

    request = TrainingRequest(
        shape=shape, task=task, precision=precision, optimizer=optimizer, sequence=sequence, gpus=gpus, nodes=nodes,
        gpus_per_node=gpus_per_node, tokens=tokens, deadline=deadline, batch=batch, price=price,
    )  # fmt: skip
    answers = [answer_training(request, one) for one in types]
    if sbatch:
        if len(answers) > 1:
            raise Refused("--sbatch prints one script", hint="give one --gpu")
        sys.stdout.write(batch_script(answers[0].sized))
    elif output is Format.json:
        found = [one.for_programs() for one in answers]
        print_json(found if len(found) > 1 else found[0])
    elif len(answers) > 1:
        size_answer.print_comparison(answers)
    else:
        size_answer.print_training(answers[0], explain=explain)


def _shape(model: str, figures: dict[str, int]) -> ModelShape:
    """Returns the model's shape of a name, a file, or figures; figures replace what the name or file says."""
    from headway.sizing.models.model_source import shape_of_config, shape_of_figures, shape_of_name, with_figures

    if not model:
        if "layers" not in figures or "width" not in figures:
            raise Refused("no model", hint="give a size (70b), a config.json, or --layers and --width")
        return shape_of_figures(figures, "own")
    path = Path(model)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix != ".json" and not path.is_file():
        return with_figures(shape_of_name(model), figures)
    try:
        with path.open("rb") as opened:
            config: Any = json.loads(opened.read(_MAX_CONFIG))
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}", hint="name a model's config.json") from None
    except ValueError:  # also a file that is no UTF-8
        raise Refused(f"{path}: not a JSON file", hint="name a model's config.json") from None
    except RecursionError:
        raise Refused(f"{path}: nested too deeply", hint="name a model's config.json") from None
    if not isinstance(config, dict):
        raise Refused(f"{path}: not an object", hint="name a model's config.json")
    return with_figures(shape_of_config(config, str(path)), figures)


def _gpu_type(name: str) -> GpuType:
    from headway.catalog.gpu_types import GPU_TYPES, find_gpu_type

    found = find_gpu_type(name)
    if found is None:
        raise Refused(f"--gpu {name}: not a known GPU type", hint=f"known are {', '.join(GPU_TYPES)}")
    return found


def _one_of(option: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise Refused(f"{option} {value}: not known", hint=f"known are {', '.join(known)}")


def _refuse_for_inference(tokens: str, deadline: str, *, sbatch: bool) -> None:
    for option, given in (("--tokens", tokens), ("--deadline", deadline), ("--sbatch", sbatch)):
        if given:
            raise Refused(
                f"{option} is of trainings, --task inference has none",
                hint="leave it out; --rate gives tokens per second",
            )


def _print_services(
    shape: ModelShape, types: list[GpuType], gpus: int, precision: str, context: int, concurrency: int, rate: float, price: float,
    output: Format, *, explain: bool,
) -> None:  # fmt: skip
    from headway.sizing.gpu_prices import lowest_price
    from headway.sizing.inference import BAND, size_service, why_not_served

    found, prices = [], []
    for gpu in types:
        one = size_service(
            shape, gpu, precision=precision, context=context, concurrency=concurrency, tokens_s=rate, gpus=gpus
        )
        if one is None:
            message, hint = why_not_served(
                shape, gpu, precision=precision, context=context, concurrency=concurrency, gpus=gpus
            )
            raise Refused(message, hint=hint)
        known = lowest_price(gpu, 1)
        found.append(one)
        prices.append(price or (known.usd if known else None))
    if output is Format.json:
        print_json([
            {**one.for_programs(), "usd_per_gpu_hour": usd} for one, usd in zip(found, prices, strict=True)
        ])  # fmt: skip
        return
    size_answer.print_services(found, prices)
    common.print_note(
        f"±{BAND:.0%}: bound by memory bandwidth (Pope et al., 2211.05102); not fitted to measured services"
    )
    if explain:
        common.print_note("a token reads the active weights and each request's cache at 70 % of the memory bandwidth; prompts "
                          "reach half of the peak; KV cache: 2 bytes x layers x key and value width x tokens")  # fmt: skip


def _answer_rows(file: Path, output: Format) -> None:
    from headway.sizing.answered_rows import MAX_BYTES, answer_rows
    from headway.sizing.parameters import shipped_calibration

    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotFound(f"{file}: {error.strerror}", hint="name a CSV file of this machine") from None
    answers = answer_rows(data, str(file), shipped_calibration().parameters)
    if output is Format.json:
        print_json([asdict(answer) for answer in answers])
        return
    columns = [
        tables.Column("ROW", right=True), tables.Column("MODEL", shrink=True), tables.Column("TOKENS/S/GPU", right=True),
        tables.Column("BAND", right=True), tables.Column("GB/GPU", right=True), tables.Column("", shrink=True),
    ]  # fmt: skip
    print_rows(columns, [
        [
            str(one.row), one.model, "" if one.tok_s_gpu is None else f"{one.tok_s_gpu:,.0f}",
            "" if one.band is None else f"±{one.band:.0%}",
            "" if one.memory_bytes is None else f"{one.memory_bytes / _GB:.1f}",
            (one.error, "bad") if one.error else "" if one.fits else ("does not fit", "warn"),
        ]
        for one in answers
    ])  # fmt: skip
    failed = sum(bool(one.error) for one in answers)
    if failed:
        common.print_note(f"{formatting.plural(failed, 'row')} of {len(answers)} can't be answered")
