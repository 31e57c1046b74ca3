"""Atomic checkpoints and progress reports for training with PyTorch.

    from headway_train import Checkpointer, report

`report` imports no torch; `Checkpointer` imports it at first use.

Not here: what receives the reports (`node/agent/jobs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway_train.checkpoint_folder import CheckpointError
from headway_train.progress import report

if TYPE_CHECKING:
    from headway_train.checkpointer import Checkpointer

__all__ = ["CheckpointError", "Checkpointer", "report"]


def __getattr__(name: str) -> Any:
    if name == "Checkpointer":
        from headway_train.checkpointer import Checkpointer

        return Checkpointer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
