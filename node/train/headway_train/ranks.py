"""Communication between the ranks of a training about a checkpoint. It uses gloo in a separate process group, so that it
needs no GPU and does not mix with the training's messages."""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from headway_train.checkpoint_folder import CheckpointError

T = TypeVar("T")

PATIENCE = timedelta(hours=2)  # time limit for the slowest rank's write; a rank that died is noticed at once

# Tensors of the newest messages; they outlive the process group. Before PyTorch 2.8, destroy_process_group holds Python's
# global lock while it waits for gloo's threads. A thread that drops the last reference to a tensor made in Python waits
# for the same lock, and the process never ends (https://github.com/pytorch/pytorch/issues/56297).
_kept: deque[list[torch.Tensor]] = deque(maxlen=64)


class _Agreed(CheckpointError):
    """An error that all ranks raise at the same place, so it is not sent to the other ranks again."""


class Ranks:
    """The ranks of a training. All of them create it at the same place, and call every method at the same places."""

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.size = dist.get_world_size() if together else 1
        self.rank = dist.get_rank() if together else 0
        if not together and int(os.environ.get("WORLD_SIZE") or 1) > 1:
            raise CheckpointError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but this process is not in a process group: "
                "call torch.distributed.init_process_group before Checkpointer"
            )
        self.group = dist.new_group(backend="gloo", timeout=PATIENCE) if self.size > 1 else None

    def gather(self, value: T) -> list[T]:
        """Returns every rank's value, in rank order."""
        if self.group is None:
            return [value]
        message = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        sizes = self._gather_tensors(torch.tensor([message.numel()]))
        longest = max(int(size.item()) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: message.numel()] = message
        messages = self._gather_tensors(padded)
        return [
            pickle.loads(bytes(one[: int(size.item())].tolist())) for one, size in zip(messages, sizes, strict=True)
        ]

    def chosen(self, value: T) -> T:
        """Returns rank 0's value, on all ranks."""
        return self.gather(value)[0]

    def _gather_tensors(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Returns every rank's tensor, in rank order; all have the same shape and type."""
        received = [torch.empty_like(tensor) for _ in range(self.size)]
        keep_tensors(tensor, *received)
        dist.all_gather(received, tensor, group=self.group)
        return received

    def together(self, work: Callable[[], T], *, only: int | None = None) -> list[T | None]:
        """Runs `work` on every rank, or on rank `only`, and returns every rank's result. If it fails on one rank, raises
        CheckpointError on all ranks, so that no rank waits for the failed one."""
        value: T | None = None
        fault = ""
        if only in (None, self.rank):
            try:
                value = work()
            except (_Agreed, KeyboardInterrupt, SystemExit):
                raise
            except CheckpointError as error:
                fault = str(error)
            except BaseException as error:  # torch's CheckpointException is not a subclass of Exception
                fault = _words(error)
        results = self.gather((value, fault))
        faults = {fault: rank for rank, (_, fault) in reversed(list(enumerate(results))) if fault}
        if faults:
            raise _Agreed("; ".join(f"rank {rank}: {fault}" for fault, rank in sorted(faults.items())[:3]))
        return [value for value, _ in results]


def _words(error: BaseException) -> str:
    """Returns the error as one line. torch collects the errors of all ranks with tracebacks; the first one is used."""
    failures = getattr(error, "failures", None)
    if isinstance(failures, dict) and failures:
        first = next(iter(failures.values()))
        error = first[0] if isinstance(first, tuple) else first
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def keep_tensors(*tensors: torch.Tensor) -> None:
    """Keeps the tensors of a message until its process group has ended."""
    _kept.append(list(tensors))


class Flag:
    """A flag that any rank can raise and that all ranks see at the same call of `seen`. It does not block: a message sent
    at one call is read at the next call."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._raised = False
        self._pending: tuple[Any, torch.Tensor] | None = None

    def raise_(self, *_: object) -> None:
        """Raises the flag; usable as a signal handler."""
        self._raised = True

    def seen(self) -> bool:
        """Returns True once for each time it was raised."""
        mine, self._raised = self._raised, False
        if self._ranks.group is None:
            return mine
        answer = self._answer()
        tensor = torch.tensor([int(mine)])
        keep_tensors(tensor)
        work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._ranks.group, async_op=True)
        self._pending = (work, tensor)
        return answer

    def _answer(self) -> bool:
        if self._pending is None:
            return False
        work, tensor = self._pending
        work.wait()
        return bool(tensor.item())
