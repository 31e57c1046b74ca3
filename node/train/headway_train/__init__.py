"""Atomic checkpoints and progress reports for training with PyTorch.

    from headway_train import Checkpointer, report

`report` imports no torch; `Checkpointer` imports it at first use.

Not here: what receives the reports (`node/agent/jobs`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway_train.checkpoint_folder import CheckpointError
    from headway_train.checkpointer import Checkpointer
    from headway_train.progress import report

__all__ = ["CheckpointError", "Checkpointer", "report"]

# Imported at first use, because the task prolog of each task imports this package (mlflow_receiver.task_prolog).
_MODULES = {"CheckpointError": "checkpoint_folder", "Checkpointer": "checkpointer", "report": "progress"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"headway_train.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
