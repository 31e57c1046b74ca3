"""cancel ends jobs."""

from __future__ import annotations

from headway.errors import NotAllowed
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_cancel_continues_after_a_failure_and_exits_with_its_code(cli: Cli) -> None:
    def answer(_: str, number: int, *, task: str) -> None:
        assert not task
        if number == 12:
            raise NotAllowed("job 12 is bob's")

    cli.api.on("jobs.cancel", answer)
    done = cli("cancel", "lab", "12", "13")
    assert done.code == 4
    assert done.out == "cancelled 13 on lab\n"
    assert "job 12 is bob's" in done.err
