"""The MLflow server runs while it is installed, is started again after its death, and ends with Headway's server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from headway.mlflow_files import FOLDER, LOCK_DIGEST
from headway.server.mlflow.process import MlflowProcess
from headway.services.mlflow.status import FAILED, NOT_INSTALLED, RUNNING, MlflowStatus

# Stands for `mlflow server`: answers every request at the socket of --uvicorn-opts, has a child as MLflow has uvicorn, and writes
# the process ids of both.
STAND_IN = """#!{python}
import http.server, os, socket, socketserver, subprocess, sys
path = sys.argv[sys.argv.index("--uvicorn-opts") + 1].removeprefix("--uds ")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def address_string(self):
        return ""
server = socketserver.ThreadingUnixStreamServer(path, Handler)
new = os.path.join(os.getcwd(), "pid.new")
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
open(new, "w").write(f"{{os.getpid()}} {{child.pid}}")
os.rename(new, os.path.join(os.getcwd(), "pid"))
server.serve_forever()
"""


def processes(folder: Path) -> list[int]:
    """Returns the process ids of the stand-in and its child."""
    return [int(word) for word in (folder / "pid").read_text().split()]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


async def test_the_mlflow_server_is_kept_running(tmp_path: Path) -> None:
    status, due, pauses = MlflowStatus(), asyncio.Event(), 0

    async def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1
        await due.wait()
        due.clear()

    folder = tmp_path / FOLDER
    running = asyncio.create_task(MlflowProcess(tmp_path, status, pause).run())
    await until(lambda: pauses == 1)
    assert status.state == NOT_INSTALLED
    (folder / "env" / "bin").mkdir(parents=True)
    program = folder / "env" / "bin" / "mlflow"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    (folder / "env" / LOCK_DIGEST).write_text("digest\n")
    due.set()
    await until(lambda: status.state == RUNNING and status.http is not None)

    first, first_child = processes(folder)
    os.kill(first, signal.SIGKILL)
    await until(lambda: pauses == 2)
    assert status.state == FAILED
    assert status.http is None
    assert "exit code 137" in status.error
    await until(lambda: not runs(first_child))
    due.set()
    await until(lambda: status.state == RUNNING)
    second, second_child = processes(folder)
    assert second != first

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not Path(f"/proc/{second}").exists()
    await until(lambda: not runs(second_child))
    assert (folder / "mlflow.log").stat().st_mode & 0o777 == 0o600


async def test_mlflow_ends_with_a_headway_server_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    (folder / "env" / "bin").mkdir(parents=True)
    program = folder / "env" / "bin" / "mlflow"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    (folder / "env" / LOCK_DIGEST).write_text("digest\n")
    script = (
        "import asyncio, pathlib, sys\n"
        "from headway.server.mlflow.process import MlflowProcess\n"
        "from headway.services.mlflow.status import MlflowStatus\n"
        "asyncio.run(MlflowProcess(pathlib.Path(sys.argv[1]), MlflowStatus()).run())\n"
    )
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(tmp_path))
    try:
        await until((folder / "pid").exists)
        started = processes(folder)
        assert all(runs(pid) for pid in started)
    finally:
        server.kill()
        await server.wait()
    await until(lambda: not any(runs(pid) for pid in started))


async def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    status, ended = MlflowStatus(), asyncio.Event()

    async def pause(_: float) -> None:
        ended.set()
        await asyncio.Event().wait()

    (tmp_path / FOLDER / "env").mkdir(parents=True)
    (tmp_path / FOLDER / "env" / LOCK_DIGEST).write_text("digest\n")  # and no program
    running = asyncio.create_task(MlflowProcess(tmp_path, status, pause).run())
    async with asyncio.timeout(60):
        await ended.wait()
    assert status.state == FAILED
    assert "not installed" in status.error
    assert "headway mlflow install" in status.error
    assert "make setup" not in status.error
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
