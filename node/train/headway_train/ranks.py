"""Communication between the ranks of a training around a checkpoint: over gloo, in a process group of its own, so that it
needs no GPU and does not mix with the training's own messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from headway_train.files import CheckpointError

T = TypeVar("T")

PATIENCE = timedelta(hours=2)  # the slowest rank's write; a rank that died is noticed at once


class _Agreed(CheckpointError):
    """Raised on all ranks at the same place: none has to be told of it any more."""


class Ranks:
    """All ranks make this at the same place, and call every method at the same places."""

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.size = dist.get_world_size() if together else 1
        self.rank = dist.get_rank() if together else 0
        if not together and int(os.environ.get("WORLD_SIZE") or 1) > 1:
            raise CheckpointError(
                f"WORLD_SIZE says {os.environ['WORLD_SIZE']} ranks, but they can't speak to each other yet: "
                "call torch.distributed.init_process_group before Checkpointer"
            )
        self.group = dist.new_group(backend="gloo", timeout=PATIENCE) if self.size > 1 else None

    def gather(self, value: T) -> list[T]:
        """Everybody's value, in rank order."""
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def chosen(self, value: T) -> T:
        """Rank 0's value, on all ranks."""
        if self.group is None:
            return value
        box: list[Any] = [value]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def together(self, work: Callable[[], T], *, only: int | None = None) -> list[T | None]:
        """Does `work` on every rank, or on one; everybody's result. Raises CheckpointError on all ranks alike when it
        failed on any: otherwise the others would wait for the one that gave up."""
        value: T | None = None
        fault = ""
        if only in (None, self.rank):
            try:
                value = work()
            except (_Agreed, KeyboardInterrupt, SystemExit):
                raise
            except CheckpointError as error:
                fault = str(error)
            except BaseException as error:  # torch's own is no Exception; whatever it was, all ranks must hear of it
                fault = _words(error)
        told = self.gather((value, fault))
        faults = {fault: rank for rank, (_, fault) in reversed(list(enumerate(told))) if fault}
        if faults:
            raise _Agreed("; ".join(f"rank {rank}: {fault}" for fault, rank in sorted(faults.items())[:3]))
        return [value for value, _ in told]


def _words(error: BaseException) -> str:
    """One line. torch gathers what went wrong on which rank, each with its traceback."""
    failures = getattr(error, "failures", None)
    if isinstance(failures, dict) and failures:
        first = next(iter(failures.values()))
        error = first[0] if isinstance(first, tuple) else first
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


class Flag:
    """Whether any rank has raised it, known on all ranks at the same call of `seen`, without waiting: what is asked at
    one call is answered at the next."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._raised = False
        self._asked: tuple[Any, torch.Tensor] | None = None

    def raise_(self, *_: object) -> None:
        self._raised = True

    def seen(self) -> bool:
        """True once for each time it was raised."""
        mine, self._raised = self._raised, False
        if self._ranks.group is None:
            return mine
        answer = self._answer()
        tensor = torch.tensor([int(mine)])
        work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._ranks.group, async_op=True)
        self._asked = (work, tensor)
        return answer

    def _answer(self) -> bool:
        if self._asked is None:
            return False
        work, tensor = self._asked
        work.wait()
        return bool(tensor.item())
