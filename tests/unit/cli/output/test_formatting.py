"""Values are formatted for people."""

from __future__ import annotations

import pytest

from headway.cli.output import formatting
from headway.cli.output.terminal import Terminal
from tests.support.cli_fakes import node


def test_gpu_cells_are_ascii_without_unicode() -> None:
    terminal = Terminal(colours=False, width=None, unicode=False)
    assert formatting.node_gpus(node(used=3), terminal)[:8] == [("#", "busy")] * 3 + [(".", "dim")] * 5


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (247, "4:07"), (3847, "1:04:07"), (90061, "1-01:01:01"), (None, "unlimited")],
)
def test_durations_use_the_slurm_format(seconds: float | None, text: str) -> None:
    assert formatting.duration(seconds) == text
