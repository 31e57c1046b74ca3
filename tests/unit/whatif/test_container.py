"""The file of jobs that node/whatif/replay.c reads."""

from __future__ import annotations

import re

from headway.paths import node_dir
from headway.whatif.container import job_lines
from headway.whatif.trace import TraceJob


def test_a_job_is_a_line_of_as_many_fields_as_the_program_reads() -> None:
    job = TraceJob("1", "alice", "vision", 10.7, 2, 4, 60, gpus=8, features="a\tb\nc", limit_min=5)
    (line,) = job_lines({"j0": job}, {"alice": 20_000}).splitlines()
    fields = line.split("\t")
    assert fields == [
        "j0",
        "10",
        "20000",
        "20000",
        "vision",
        "-",
        "-",
        "5",
        "2",
        "4",
        "0",
        "gres/gpu:8",
        "a b c",
        "0",
        "60",
        "0",
    ]
    read = re.search(r"#define FIELDS (\d+)", (node_dir() / "whatif" / "replay.c").read_text())
    assert read is not None
    assert len(fields) == int(read[1])
