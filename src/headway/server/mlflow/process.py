"""The process of the MLflow server. It listens at a Unix socket in a folder that only Headway's user may open, because it checks
no one's access itself."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from headway.errors import HeadwayError
from headway.mlflow_files import FOLDER, installed_lock
from headway.services.mlflow.status import FAILED, NOT_INSTALLED, RUNNING, STARTING, MlflowStatus
from headway.transport.http_socket import http_client
from headway.transport.process import start_logged_process, stop_process_group

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger("headway.server.mlflow")
START_S = 300.0  # until it answers: the first start makes the tables
LOOK_S = 5.0  # between two looks whether it was installed, or still runs
AGAIN_S = (5.0, 15.0, 60.0)  # until it is started again, after the first, second and every further failure in a row
TIMEOUT_S = 60.0  # of a request
# No jobs of its own (evaluations, gateways), and no reports to MLflow's makers
_ENV = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class MlflowProcess:
    """Keeps the MLflow server running while it is installed."""

    def __init__(
        self, data: Path, status: MlflowStatus, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._folder = data / FOLDER
        self._status = status
        self._pause = pause

    async def run(self) -> None:
        """Starts it whenever it does not run, until cancelled; then ends it."""
        failures = 0
        while True:
            if not installed_lock(self._folder):
                self._status.state, self._status.error = NOT_INSTALLED, ""
                await self._pause(LOOK_S)
                continue
            try:
                failures = 0 if await self._run_once() else failures + 1
            except (HeadwayError, OSError) as error:
                failures += 1
                self._status.error = str(error)
            self._status.state = FAILED
            log.warning("the MLflow server ended", error=self._status.error, log=str(self._folder / "mlflow.log"))
            await self._pause(AGAIN_S[min(max(failures, 1), len(AGAIN_S)) - 1])

    async def _run_once(self) -> bool:
        """Runs it until it ends. Returns whether it had answered."""
        place = Path(tempfile.mkdtemp(prefix="headway-mlflow-"))
        socket, answered = place / "socket", False
        self._status.state = STARTING
        process = await start_logged_process(
            server_command(self._folder, socket),
            log=self._folder / "mlflow.log",
            env=_ENV,
            cwd=self._folder,
            install_hint="headway mlflow install",
        )
        http = http_client(str(socket), "http://localhost", timeout_s=TIMEOUT_S)
        try:
            ended = asyncio.ensure_future(process.wait())
            answered = await _answers(http, ended)
            if answered:
                self._status.state, self._status.error, self._status.http = RUNNING, "", http
                log.info("the MLflow server answers")
                await ended
            code = process.returncode
            self._status.error = f"exit code {code}" if code is not None else f"no answer within {START_S:.0f} s"
        finally:
            self._status.http = None
            await stop_process_group(process)  # its worker is a child, which a SIGKILL of the process leaves
            await http.aclose()
            shutil.rmtree(place, ignore_errors=True)
        return answered


async def _answers(http: httpx.AsyncClient, ended: asyncio.Future[int]) -> bool:
    """Waits until the server answers. Returns False if it ends before, or takes longer than START_S."""
    import httpx

    loop = asyncio.get_running_loop()
    until = loop.time() + START_S
    while loop.time() < until and not ended.done():
        try:
            if (await http.get("/health")).is_success:
                return True
        except httpx.HTTPError:
            await asyncio.wait({ended}, timeout=0.5)
    return False


def server_command(folder: Path, socket: Path) -> list[str]:
    """Returns the command of the MLflow server whose data are below `folder`."""
    return [
        str(folder / "env" / "bin" / "mlflow"),
        "server",
        "--backend-store-uri",
        f"sqlite:///{folder / 'mlflow.db'}",
        "--serve-artifacts",
        "--artifacts-destination",
        str(folder / "artifacts"),
        "--enable-workspaces",
        "--workers",
        "1",
        "--app-name",
        "headway",
        "--uvicorn-opts",
        f"--uds {socket}",
    ]
