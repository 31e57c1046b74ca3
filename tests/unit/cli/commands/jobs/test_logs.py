"""logs prints the output of a job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_logs_writes_the_log_bytes_unchanged(cli: Cli) -> None:
    cli.api.on("clusters.only_name", "lab").on("jobs.log", lambda *_, **__: iter([b"a\xff", b"\r\nb"]))
    assert cli("logs", "-f", "12").raw == b"a\xff\r\nb"
    assert cli.api.named("jobs.log") == [(("lab", 12), {"follow": True, "err": False, "task": ""})]


@pytest.mark.parametrize("words", [("lab", "-f", "12"), ("-f", "lab", "12"), ("lab", "12", "-f")])
def test_logs_accepts_cluster_job_and_flags_in_any_order(cli: Cli, words: tuple[str, ...]) -> None:
    cli.api.on("jobs.log", lambda *_, **__: iter(()))
    cli("logs", *words)
    assert cli.api.named("jobs.log") == [(("lab", 12), {"follow": True, "err": False, "task": ""})]


def test_interrupted_logs_says_how_to_follow_the_job_again(cli: Cli) -> None:
    def interrupted(*_: object, **__: object) -> Iterator[bytes]:
        yield b"x"
        raise KeyboardInterrupt

    cli.api.on("jobs.log", interrupted)
    done = cli("logs", "lab", "-f", "12")
    assert done.code == 130
    assert "job 12 continues; follow it again: headway logs lab -f 12" in done.err


def test_logs_accepts_a_task_id_or_the_task_option(cli: Cli) -> None:
    cli.api.on("jobs.log", lambda *_, **__: iter([b"x"]))
    cli("logs", "lab", "12_3")
    cli("logs", "lab", "12", "--task", "3")
    assert [kwargs["task"] for _, kwargs in cli.api.named("jobs.log")] == ["3", "3"]
    assert {args for args, _ in cli.api.named("jobs.log")} == {("lab", 12)}


def test_logs_filters_escape_sequences_only_on_a_terminal(cli: Cli) -> None:
    sent = b"\x1b]52;c;eA==\x07\x1b[31mx\n"
    cli.api.on("jobs.log", lambda *_, **__: iter([sent]))
    assert cli("logs", "lab", "12").raw == sent
    assert cli("logs", "lab", "12", terminal=True).raw == b"^[]52;c;eA==^G\x1b[31mx\n\x1b[0m"
    assert cli("logs", "lab", "12", "--raw", terminal=True).raw == sent
