"""Real server processes, each on its own state folder."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headway.sdk.local_server import RunningServer, running_server
from headway.store import AuditAsk, open_store
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]


@dataclass
class ServerProcess:
    """A server on this folder. `program` is the module that it runs; it writes errors to a file next to the folder."""

    state_dir: Path
    program: str = "tests.support.servers.simulated_server"
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    answering: RunningServer | None = None  # as it was when it last answered

    def start(self) -> None:
        argv = [sys.executable, "-m", self.program]
        env = {**os.environ, **self.env, "HEADWAY_STATE": str(self.state_dir)}
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(argv, cwd=ROOT, env=env, stderr=errors)

    def wait_ready(self) -> RunningServer:
        """Waits until the server answers on its port. Raises AssertionError if it ends before."""

        def look() -> RunningServer | None:
            assert self.process is not None
            assert self.process.poll() is None, f"the server ended: {self.last_errors()}"
            return running_server(self.state_dir)

        self.answering = wait_until(look, "the server", self.last_errors)
        assert self.answering is not None
        return self.answering

    def kill(self) -> None:
        """Ends the server as kill -9 does, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def errors(self) -> Path:
        return self.state_dir.with_name(f"{self.state_dir.name}.err")

    def last_errors(self) -> str:
        return self.errors.read_text()[-2000:]


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the state folder of this test's server; other settings of Headway in the environment are removed."""
    folder = tmp_path / "state"
    for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADWAY_STATE", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder


@pytest.fixture
def start(state_dir: Path) -> Iterator[Start]:
    """Yields a function that starts a server with simulated work and the given environment, when the last one has
    ended; servers end with the test."""
    with ExitStack() as ends:
        started: list[ServerProcess] = []

        def go(**env: str) -> RunningServer:
            for killed in started:
                assert killed.process is not None
                killed.process.wait(60)
            server = ServerProcess(state_dir, env=env)
            started.append(server)
            ends.callback(server.kill)
            server.start()
            return server.wait_ready()

        yield go


def resident_mib(pid: int) -> float:
    """Returns the memory that a process occupies now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def guessed_token_addresses(state_dir: Path) -> list[str]:
    """Returns the addresses from which guessed tokens came, by the audit trail of this state folder."""

    async def read() -> list[str]:
        store = await open_store(state_dir)
        try:
            return [line.address for line in await store.audit.search(AuditAsk(action="token.unknown"))]
        finally:
            await store.close()

    return asyncio.run(read())
