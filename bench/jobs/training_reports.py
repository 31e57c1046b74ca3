"""Logging costs of a training: the share of `headway_train.report` in its processor time, called at each step.

    python bench jobs/training_reports [--steps 500] [--step-ms 10] [--numbers 10]

A step is a fixed computation outside of Python's interpreter lock, as those of torch are. The time of the calls and that of the
thread that writes the file are measured in the same run: the difference of two runs varies by more on a busy machine."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

TRAIN = str(Path(__file__).resolve().parents[2] / "node" / "train")


def rounds_of(step_ms: float) -> int:
    """Returns how much computation takes so many milliseconds of processor time here."""
    began = time.thread_time()
    hashlib.pbkdf2_hmac("sha256", b"step", b"salt", 100_000)
    return max(1, int(100_000 * step_ms / 1000 / (time.thread_time() - began)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--numbers", type=int, default=10)
    options = parser.parse_args()
    sys.path.insert(0, TRAIN)
    from headway_train import metrics_file, report

    more = {f"metric_{number}": 0.5 for number in range(options.numbers - 1)}
    work, in_calls = rounds_of(options.step_ms), 0.0
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"SLURM_JOB_ID": "7", "HEADWAY_METRICS_DIR": folder}
        began, own = time.process_time(), time.thread_time()
        for step in range(options.steps):
            hashlib.pbkdf2_hmac("sha256", b"step", b"salt", work)
            called = time.thread_time()
            report(step=step, loss=1.0 / (step + 1), **more)
            in_calls += time.thread_time() - called
        if metrics_file._file is not None:
            metrics_file._file.close()
        own = time.thread_time() - own
        writing = time.process_time() - began - own
        lines = len((Path(folder) / "7.jsonl").read_text().splitlines())
    computing = own - in_calls
    print(
        f"{options.steps} steps of about {options.step_ms:.0f} ms, {options.numbers} numbers each, {lines} lines written"
    )
    print(
        f"a report: {in_calls / options.steps * 1e6:.0f} us in the training, {writing / options.steps * 1e6:.0f} us in the thread"
    )
    print(f"share of the computation: {in_calls / computing:.2%} and {writing / computing:.2%}")
    print(f"load average {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
