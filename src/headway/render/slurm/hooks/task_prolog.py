"""The task prolog, which slurmd runs as the job's user before each task; it reads from its output which variables the task
gets."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK
from headway.render.machine_paths import PYTHON_PACKAGES, TASK_PROLOG

_SCRIPT = f"""\
#!/bin/sh
# {MARK}
# Gives the job MLFLOW_TRACKING_URI and MLFLOW_TRACKING_TOKEN. A job starts also if this fails.
python3 -I -S {PYTHON_PACKAGES}/headway_train/mlflow_receiver/task_prolog.py
exit 0
"""


def files(cluster: Cluster) -> dict[str, File]:
    """Returns the script; {} if jobs of this cluster do not log to MLflow."""
    return {TASK_PROLOG: File(_SCRIPT, mode=0o755)} if cluster.mlflow else {}
