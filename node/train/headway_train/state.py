"""A training's state as a checkpoint holds it, and back: models, optimizers and whatever else has a state_dict.

Two forms. "dcp": torch.distributed.checkpoint, each rank writes its own part, and a run with another number of ranks can
read it. "torch": one file by rank 0, for a torch before 2.3 that lacks the first; it can't hold a sharded model.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from headway_train.files import CheckpointError
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
# Said at every save, of torch's own storage code and of a training that has one process.
warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.distributed\.checkpoint\.")


def capture(state: Mapping[str, Any], form: str = FORMAT) -> dict[str, Any]:
    """Plain values and tensors under the same names. Tensors are the training's own, not copies. All ranks call it."""
    return {name: _capture(value, state, form) for name, value in state.items()}


def _capture(value: Any, state: Mapping[str, Any], form: str) -> Any:
    if form == "dcp":
        if isinstance(value, nn.Module):
            return get_model_state_dict(value)
        if isinstance(value, Optimizer):
            return get_optimizer_state_dict(_owner(value, state), value)
    return _bare(value).state_dict() if hasattr(value, "state_dict") else value


def restore(state: dict[str, Any], held: Mapping[str, Any], form: str = FORMAT) -> None:
    """Puts what a checkpoint held back: into the objects of `state`, and in place of its plain values."""
    for name, value in list(state.items()):
        if form == "dcp" and isinstance(value, nn.Module):
            set_model_state_dict(value, held[name])
        elif form == "dcp" and isinstance(value, Optimizer):
            set_optimizer_state_dict(_owner(value, state), value, held[name])
        elif hasattr(value, "load_state_dict"):
            _bare(value).load_state_dict(held[name])
        else:
            state[name] = held[name]


def _bare(value: Any) -> Any:
    """The model inside DistributedDataParallel, so that a run without it can read the checkpoint. Raises
    CheckpointError for a sharded one, which this form can't hold."""
    if type(value).__name__ == "FullyShardedDataParallel":
        raise CheckpointError(f"torch {torch.__version__} can't save a sharded model this way; it takes torch 2.3")
    return value.module if isinstance(value, nn.parallel.DistributedDataParallel) else value


def _owner(optimizer: Optimizer, state: Mapping[str, Any]) -> nn.Module:
    """The model of `state` that this optimizer trains."""
    models = [value for value in state.values() if isinstance(value, nn.Module)]
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for model in models:
        if any(id(p) in trained for p in model.parameters()):
            return model
    raise CheckpointError(
        f"{type(optimizer).__name__} trains no model of this state: save them together, "
        'as in {"model": model, "optimizer": optimizer}'
    )


def write(held: dict[str, Any], part: Path, ranks: Ranks, form: str = FORMAT) -> None:
    """Writes it into the folder `part`; returns when this rank's files are there."""
    if form == "dcp":
        dcp.save(held, storage_writer=dcp.FileSystemWriter(part), process_group=ranks.group)
    elif ranks.rank == 0:
        torch.save(held, part / _FILE)


def write_beside(held: dict[str, Any], part: Path, ranks: Ranks, form: str = FORMAT) -> Callable[[], object]:
    """Copies it to main memory, and writes the copy while the training goes on. What is returned finishes the write,
    in another thread."""
    mine = copied(held)
    if form == "dcp" and hasattr(dcp, "async_save"):
        writer = dcp.FileSystemWriter(part)
        writing: Future[Any] = dcp.async_save(mine, storage_writer=writer, process_group=ranks.group)
        return writing.result
    return lambda: write(mine, part, ranks, form)


def copied(value: Any) -> Any:
    """A copy that the next training step does not change. Of what lies on a GPU async_save itself makes the copy; of
    what lies in main memory it would write the training's own tensors, half of one step and half of the next."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.device.type == "cpu":
            return value.clone()
        return value if FORMAT == "dcp" and hasattr(dcp, "async_save") else value.cpu()
    if isinstance(value, dict):
        return {name: copied(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(one) for one in value)
    return copy.deepcopy(value)


def read(state: dict[str, Any], place: Path, ranks: Ranks, form: str) -> None:
    """Reads a checkpoint of this form into the objects of `state`. All ranks call it."""
    if form == "torch":
        restore(state, torch.load(place / _FILE, map_location="cpu"), form)
        return
    if form != FORMAT:
        raise CheckpointError(f"torch {torch.__version__} can't read the form {form!r} it was written in")
    held = capture(state, form)
    # What does not fit shows when each rank plans its reads. In dcp.load it shows too, but on Python 3.13 and torch 2.6
    # the ranks then fail at telling each other what it was.
    planner = dcp.DefaultLoadPlanner()
    planner.set_up_planner(held, dcp.FileSystemReader(place).read_metadata(), ranks.rank == 0)
    ranks.together(planner.create_local_plan)
    dcp.load(held, storage_reader=dcp.FileSystemReader(place), process_group=ranks.group)
    restore(state, held, form)
