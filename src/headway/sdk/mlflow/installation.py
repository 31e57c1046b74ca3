"""Installs MLflow on the server's machine, in an environment of its own: its 90 packages are larger than Headway, and some are
of other versions."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from headway.errors import HeadwayError
from headway.mlflow_files import LOCK_DIGEST, application, installed_lock, wanted_lock
from headway.paths import mlflow_lock
from headway.transport.process import run_process

_INSTALL_S = 1800.0
_APP = "headway_mlflow"
_ENTRY_POINTS = f"[mlflow.app]\nheadway = {_APP}:app\n"
_METADATA = f"Metadata-Version: 2.1\nName: {_APP.replace('_', '-')}\nVersion: 1\n"


async def install_mlflow(folder: Path, on_line: Callable[[str], None]) -> bool:
    """Makes the environment `env` below `folder`. Returns False if it is there already. Raises CommandFailed, and HeadwayError if
    the server's data are not on this machine."""
    if not folder.parent.is_dir():
        raise HeadwayError(
            f"there is no server's folder {folder.parent} on this machine",
            hint="run it on the server's machine, as the server's user and with its HEADWAY_STATE and HEADWAY_DATA",
        )
    env = folder / "env"
    if installed_lock(folder) == wanted_lock() and all((env / "bin" / name).exists() for name in ("mlflow", "python")):
        return False
    folder.mkdir(mode=0o700, exist_ok=True)
    (env / LOCK_DIGEST).unlink(missing_ok=True)
    shutil.rmtree(env, ignore_errors=True)
    await run_process([sys.executable, "-m", "venv", str(env)], timeout_s=_INSTALL_S)
    pip = [str(env / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--require-hashes"]
    lock = ["--only-binary", ":all:", "-r", str(mlflow_lock())]
    await run_process([*pip, *lock], timeout_s=_INSTALL_S, on_line=on_line)
    packages = next((env / "lib").glob("python3.*")) / "site-packages"
    (packages / f"{_APP}.py").write_bytes(application().read_bytes())
    entry = packages / f"{_APP}-1.dist-info"
    entry.mkdir()
    (entry / "entry_points.txt").write_text(_ENTRY_POINTS)
    (entry / "METADATA").write_text(_METADATA)
    (env / LOCK_DIGEST).write_text(f"{wanted_lock()}\n")
    return True
