"""Messages and the error of the container runtime."""

from __future__ import annotations

import sys


class Failed(Exception):
    """The container can't be started. `message`: what happened; `hint`: what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


def print_message(text: str) -> None:
    """Prints a message on the task's stderr."""
    print(f"headway: {text}", file=sys.stderr, flush=True)
