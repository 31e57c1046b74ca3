"""Converts a training's state to the content of a checkpoint and back: models, optimizers and any object with a state_dict.

There are two formats. "dcp": torch.distributed.checkpoint; each rank writes its own part, and a run with another number of
ranks can read it. "torch": one file written by rank 0, for torch before 2.3, which does not support the first format; it
can't contain a sharded model."""

from __future__ import annotations

import copy
import ctypes
import sys
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from headway_train import per_rank
from headway_train.checkpoint_folder import CheckpointError, CheckpointManifest
from headway_train.ranks import Ranks

try:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    FORMAT = "dcp"
except ImportError:
    FORMAT = "torch"

_FILE = "state.pt"
_COMPARED = 16 * 1024 * 1024  # bytes of a tensor that are compared between ranks; a larger tensor is sampled
# torch warns at every save about its own storage code and about trainings with one process.
warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.distributed\.checkpoint\.")


@dataclass(frozen=True)
class Held:
    """The content of a checkpoint. `common` is the same on all ranks, or sharded over them; `own` is this rank's."""

    common: dict[str, Any]
    own: dict[str, Any] = field(default_factory=dict)


def hold_state(state: Mapping[str, Any], ranks: Ranks) -> Held:
    """Returns the state as `capture_state` does, divided into common entries and this rank's own entries: those that differ
    between ranks and are neither model nor optimizer. All ranks must call it."""
    captured = capture_state(state)
    if ranks.size == 1:
        return Held(captured)
    plain = [name for name, value in state.items() if not isinstance(value, (nn.Module, Optimizer))]
    marks_by_rank = ranks.together(lambda: {name: per_rank.mark(captured[name], _pieces) for name in plain})
    mine = per_rank.differing([marks or {} for marks in marks_by_rank]) & captured.keys()
    return Held(
        {name: value for name, value in captured.items() if name not in mine},
        {name: captured[name] for name in sorted(mine)},
    )


def _pieces(value: Any) -> list[bytes | memoryview] | None:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    if any(hasattr(value, name) for name in ("device_mesh", "local_shards", "__create_write_items__")):
        raise per_rank.Divided
    flat = value.detach().reshape(-1)
    size = flat.numel() * flat.element_size()
    if size > _COMPARED:
        flat = flat[:: -(-size // _COMPARED)]
    flat = flat.cpu().contiguous()
    size = flat.numel() * flat.element_size()
    # without numpy, which may not be installed
    content = (ctypes.c_char * size).from_address(flat.data_ptr()) if size else b""
    header = f"{value.dtype} {tuple(value.shape)}".encode()
    return [header, bytes(content)]


def capture_state(state: Mapping[str, Any], form: str = FORMAT) -> dict[str, Any]:
    """Returns plain values and tensors under the same names. The tensors are those of the training, not copies. All ranks
    must call it."""
    return {name: _capture(value, state, form) for name, value in state.items()}


def _capture(value: Any, state: Mapping[str, Any], form: str) -> Any:
    if form == "dcp":
        if isinstance(value, nn.Module):
            return get_model_state_dict(value)
        if isinstance(value, Optimizer):
            return get_optimizer_state_dict(_owner(value, state), value)
    return _bare(value).state_dict() if hasattr(value, "state_dict") else value


def restore_state(state: dict[str, Any], saved: Mapping[str, Any], form: str = FORMAT) -> None:
    """Loads the content of a checkpoint into the objects of `state`, and replaces its plain values."""
    for name, value in list(state.items()):
        if form == "dcp" and isinstance(value, nn.Module):
            set_model_state_dict(value, saved[name])
        elif form == "dcp" and isinstance(value, Optimizer):
            set_optimizer_state_dict(_owner(value, state), value, saved[name])
        elif hasattr(value, "load_state_dict"):
            _bare(value).load_state_dict(saved[name])
        else:
            state[name] = saved[name]


def _bare(value: Any) -> Any:
    """Returns the model inside DistributedDataParallel, so that a run without it can read the checkpoint. Raises
    CheckpointError for a sharded model, which this format can't hold."""
    if type(value).__name__ == "FullyShardedDataParallel":
        raise CheckpointError(f"torch {torch.__version__} can't save a sharded model: use torch 2.3 or newer")
    return value.module if isinstance(value, nn.parallel.DistributedDataParallel) else value


def _owner(optimizer: Optimizer, state: Mapping[str, Any]) -> nn.Module:
    """Returns the model of `state` that this optimizer trains. Raises CheckpointError if it trains none of them."""
    models = [value for value in state.values() if isinstance(value, nn.Module)]
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for model in models:
        if any(id(p) in trained for p in model.parameters()):
            return model
    raise CheckpointError(
        f"{type(optimizer).__name__} trains no model of this state: save them together, "
        'as in {"model": model, "optimizer": optimizer}'
    )


def write_state(captured: Held, part: Path, ranks: Ranks, form: str = FORMAT) -> None:
    """Writes the state into the folder `part`; returns when this rank's files are complete."""
    _write_own(captured, part, ranks)
    if form == "dcp":
        dcp.save(captured.common, storage_writer=dcp.FileSystemWriter(part), process_group=ranks.group)
    elif ranks.rank == 0:
        torch.save(captured.common, part / _FILE)


def _write_own(captured: Held, part: Path, ranks: Ranks) -> None:
    if captured.own:
        torch.save(copy_state(captured.own, all_of_it=True), part / per_rank.file_of(ranks.rank))


def write_beside(captured: Held, part: Path, ranks: Ranks, form: str = FORMAT) -> Callable[[], object]:
    """Copies the state to main memory and starts to write the copy. Returns a function that finishes the write; call it in
    another thread, so that the training continues."""
    mine = Held(copy_state(captured.common), copy_state(captured.own, all_of_it=True))
    if form == "dcp" and hasattr(dcp, "async_save"):
        writer = dcp.FileSystemWriter(part)
        writing: Future[Any] = dcp.async_save(mine.common, storage_writer=writer, process_group=ranks.group)

        def finish() -> None:
            try:
                _write_own(mine, part, ranks)
            finally:
                writing.result()

        return finish
    return lambda: write_state(mine, part, ranks, form)


def copy_state(value: Any, *, all_of_it: bool = False) -> Any:
    """Returns a copy that the next training step does not change. Tensors on a GPU are copied only with `all_of_it`, because
    async_save copies them itself. Tensors in main memory are copied always: async_save would write them while the next
    step changes them."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.device.type == "cpu":
            return value.clone()
        return value if FORMAT == "dcp" and hasattr(dcp, "async_save") and not all_of_it else value.cpu()
    if isinstance(value, dict):
        return {name: copy_state(item, all_of_it=all_of_it) for name, item in value.items()}
    if isinstance(value, list | tuple):
        parts = [copy_state(item, all_of_it=all_of_it) for item in value]
        # a namedtuple's constructor takes its fields one by one
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return copy.deepcopy(value)


def read_state(state: dict[str, Any], place: Path, ranks: Ranks, manifest: CheckpointManifest) -> None:
    """Reads a checkpoint into the objects of `state`. All ranks must call it. Raises CheckpointError."""
    form, found = manifest.format, list[dict[str, Any]]()
    ranks.together(lambda: found.append(_read_own(place, ranks, manifest)))
    mine = found[0]
    if form == "torch":
        loaded = torch.load(place / _FILE, map_location="cpu")
        restore_state(state, {**loaded, **mine}, form)
        return
    if form != FORMAT:
        raise CheckpointError(f"torch {torch.__version__} can't read the checkpoint's format {form!r}")
    loaded = capture_state(state, form)
    common = {name: value for name, value in loaded.items() if name not in mine}
    # Each rank's plan of its reads finds a mismatch. dcp.load finds it too, but with Python 3.13 and torch 2.6 the ranks
    # fail when they exchange that error.
    planner = dcp.DefaultLoadPlanner()
    planner.set_up_planner(common, dcp.FileSystemReader(place).read_metadata(), ranks.rank == 0)
    ranks.together(planner.create_local_plan)
    dcp.load(common, storage_reader=dcp.FileSystemReader(place), process_group=ranks.group)
    restore_state(
        state, {**common, **{name: _into(loaded[name], mine[name]) for name in loaded.keys() & mine.keys()}}, form
    )


def _read_own(place: Path, ranks: Ranks, manifest: CheckpointManifest) -> dict[str, Any]:
    """Returns the entries that were saved for each rank: this rank's, or rank 0's if the number of ranks has
    changed."""
    name, of_another = per_rank.source(ranks.rank, ranks.size, manifest.world_size, manifest.files)
    if not name:
        return {}
    mine: dict[str, Any] = torch.load(place / name, map_location="cpu", weights_only=False)
    if of_another and ranks.rank == 0:
        print(
            f"checkpoint {place} was saved by {manifest.world_size} ranks, this run has {ranks.size}: all ranks use rank 0's "
            f"copy of {', '.join(mine)}, which was saved for each rank",
            file=sys.stderr,
            flush=True,
        )
    return mine


def _into(there: Any, read: Any) -> Any:
    """Returns the values that were read. Copies them into the training's tensors where these have the same shape and
    type, as torch does with common entries."""
    if isinstance(there, torch.Tensor) and isinstance(read, torch.Tensor):
        if there.shape != read.shape or there.dtype != read.dtype:
            return read.to(there.device)
        there.detach().copy_(read)
        return there
    if isinstance(there, dict) and isinstance(read, dict):
        return {name: _into(there.get(name), item) for name, item in read.items()}
    return read
