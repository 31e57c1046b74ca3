"""Notes of submitted jobs, as a head keeps them."""

from __future__ import annotations

import os
import pwd
from typing import Any

from agent.jobs import submission_notes

BEGAN = 1_000_000
ME = pwd.getpwuid(os.getuid())
THEIRS = os.getuid() + 1
ENVIRONMENT = b"\x03\0\0\0" + f"FOO=a=b\nc\0USER={ME.pw_name}\0HOME={ME.pw_dir}\0".encode()


def note(job: int, at: int = BEGAN - 3, *argv: bytes) -> Any:
    return submission_notes.SubmissionNote(job, at, os.getuid(), (b"sbatch", *argv))


def line(job: int, at: int, argv: bytes = b"sbatch\0a.sh\0") -> str:
    return f"{job} {at} {argv.hex()}\n"
