"""The files of the MLflow server in the server's data, which the server and `headway mlflow install` both know."""

from __future__ import annotations

import hashlib
from pathlib import Path

from headway.paths import mlflow_lock, node_dir

FOLDER = "mlflow"  # in the server's data: env, mlflow.db, artifacts, journals, mlflow.log
LOCK_DIGEST = "installed.sha256"  # in the environment: of the lock that it was made from; written last


def application() -> Path:
    """Returns the application that is installed next to MLflow."""
    return node_dir() / "programs" / "mlflow_app.py"


def installed_lock(folder: Path) -> str:
    """Returns the digest of the lock that the environment below `folder` was made from; "" if there is no whole one."""
    try:
        return (folder / "env" / LOCK_DIGEST).read_text().strip()
    except OSError:
        return ""


def wanted_lock() -> str:
    """Returns the digest of the lock and of the application that this version of Headway installs."""
    return hashlib.sha256(mlflow_lock().read_bytes() + application().read_bytes()).hexdigest()
