"""Logging costs of a training that logs to MLflow: the share of `mlflow.log_metrics` in its steps, through the job's receiver.

    headway mlflow install
    python bench jobs/mlflow_logging [--steps 200] [--step-ms 200] [--numbers 10] [--python ENV/bin/python]

Each step computes for a fixed time and then logs its numbers, as Lightning and Hugging Face's Trainer do at most once a step. The
time in the calls is compared with the computation of the same run: the difference of two runs varies by more on a busy machine.
`--python` is that of an environment with MLflow; the default is the one that `headway mlflow install` makes."""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = str(Path(__file__).resolve().parents[2] / "node" / "train")
TOKEN, JOB = "secret", "7"
# Runs in the environment with MLflow; prints the seconds of each call and of each computation.
TRAINING = """\
import hashlib, json, sys, time
import mlflow
steps, step_ms, numbers = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
began = time.thread_time()
hashlib.pbkdf2_hmac("sha256", b"step", b"salt", 100_000)
work = max(1, int(100_000 * step_ms / 1000 / (time.thread_time() - began)))
values = {f"metric_{number}": 0.5 for number in range(numbers)}
mlflow.set_experiment("bench")
calls, processor, steps_s = [], 0.0, []
with mlflow.start_run():
    mlflow.log_metrics(values, step=0)  # opens the connection
    for step in range(1, steps + 1):
        began = time.perf_counter()
        hashlib.pbkdf2_hmac("sha256", b"step", b"salt", work)
        computed, used = time.perf_counter(), time.thread_time()
        mlflow.log_metrics(values, step=step)
        processor += time.thread_time() - used
        calls.append(time.perf_counter() - computed)
        steps_s.append(computed - began)
print(json.dumps({"calls": calls, "steps": steps_s, "processor": processor}))
"""


def serve(listening: socket.socket, folder: Path) -> int:
    """Starts the receiver of a job in a process of its own, and returns its number."""
    child = os.fork()
    if child == 0:
        os.environ |= {"SLURM_JOB_ID": JOB, "HEADWAY_METRICS_DIR": str(folder / "metrics")}
        sys.path.insert(0, TRAIN)
        from headway_train.mlflow_receiver import listeners

        listeners.serve(listening, TOKEN, folder / "journal", JOB)
    return child


def processor_s(process: int) -> float:
    """Returns the processor time that a process has used."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    from headway.mlflow_files import FOLDER
    from headway.paths import state_dir

    installed = Path(os.environ.get("HEADWAY_DATA") or state_dir()) / FOLDER / "env" / "bin" / "python"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=200.0)
    parser.add_argument("--numbers", type=int, default=10)
    parser.add_argument("--python", type=Path, default=installed)
    options = parser.parse_args()
    if not options.python.exists():
        parser.error(f"{options.python} does not exist: headway mlflow install, or name another with --python")
    listening = socket.create_server(("127.0.0.1", 0))
    with tempfile.TemporaryDirectory() as folder:
        receiver = serve(listening, Path(folder))
        try:
            env = {**os.environ, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{listening.getsockname()[1]}"}
            env |= {"MLFLOW_TRACKING_TOKEN": TOKEN, "MLFLOW_DISABLE_TELEMETRY": "true"}
            words = [str(options.steps), str(options.step_ms), str(options.numbers)]
            ran = subprocess.run(
                [str(options.python), "-c", TRAINING, *words], env=env, capture_output=True, text=True, check=True
            )
            found = json.loads(ran.stdout.strip().splitlines()[-1])
            received = processor_s(receiver)
            journal = Path(folder) / "journal" / f"{JOB}.jsonl"
            lines = sum(b"runs/log-batch" in line for line in journal.read_bytes().splitlines())
        finally:
            os.kill(receiver, 9)
            os.waitpid(receiver, 0)
    calls, steps = sorted(found["calls"]), found["steps"]
    median, worst = statistics.median(calls), calls[int(len(calls) * 0.99)]
    training, receiving = found["processor"] / len(calls), received / len(calls)
    print(
        f"{len(steps)} steps of about {options.step_ms:.0f} ms, {options.numbers} numbers each, {lines} in the journal"
    )
    print(f"a call: {median * 1e3:.1f} ms (median), {worst * 1e3:.1f} ms (99th percentile)")
    print(f"its processor time: {training * 1e3:.1f} ms in the training, {receiving * 1e3:.1f} ms in the receiver")
    print(
        f"share of the steps: {sum(calls) / sum(steps):.2%}; of the median step {median / statistics.median(steps):.2%}"
    )
    print(f"load average {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
