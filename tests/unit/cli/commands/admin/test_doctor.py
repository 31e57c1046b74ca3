"""doctor reports what a machine lacks."""

from __future__ import annotations

import json

import pytest

from headway.domain.machines.machine import HostProblem
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


@pytest.mark.parametrize(
    ("problems", "code", "text"),
    [
        ((), 0, "ok    this machine can run local clusters\n"),
        ((HostProblem("inotify is low", "sysctl x", fatal=False),), 0, "warn  inotify is low\n      sysctl x\n"),
        (
            (HostProblem("podman is missing", "apt install podman"),),
            1,
            "FAIL  podman is missing\n      apt install podman\n",
        ),
        (
            (
                HostProblem("inotify is low", "sysctl x", fatal=False),
                HostProblem("podman hangs", "systemctl restart podman"),
            ),
            1,
            "warn  inotify is low\n      sysctl x\nFAIL  podman hangs\n      systemctl restart podman\n",
        ),
    ],
)
def test_doctor_reports_host_gaps_and_fails_on_fatal_ones(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, problems: tuple[HostProblem, ...], code: int, text: str
) -> None:
    async def podman_problem() -> tuple[HostProblem, ...]:
        return problems[1:]

    monkeypatch.setattr("headway.providers.local.preflight.host_problems", lambda *_, **__: problems[:1])
    monkeypatch.setattr("headway.images.podman.podman_problem", podman_problem)
    assert (cli("doctor").code, cli("doctor").out) == (code, text)
    assert len(json.loads(cli("doctor", "-o", "json").out)) == len(problems)
