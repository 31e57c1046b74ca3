"""Jobs of a trace in the Standard Workload Format."""

from __future__ import annotations

from headway.whatif.swf_trace import read_swf
from tests.unit.whatif.clusters import lab

_TEXT = """\
; UnixStartTime: 5000
  1    10    20   100   12   -1  -1   12   3600  -1   1   1   1  -1  1  1 -1 -1
  2    11    -1     0    1   -1  -1    1   3600  -1   5   2   1  -1  1  1 -1 -1
  3    12     0     0    0   -1  -1   -1   3600  -1   0   2   1  -1  1  1 -1 -1
odd line
"""


def test_processors_are_gpus_on_whole_nodes_and_users_those_of_the_cluster() -> None:
    (job, cancelled), left_out = read_swf(_TEXT, lab())
    assert (job.submit, job.start, job.end, job.nodes, job.gpus, job.limit_min) == (5010, 5030, 5130, 2, 6, 60)
    assert job.user in ("alice", "vera", "sam")
    assert cancelled.cancelled_at == 5011
    assert sum(left_out.values()) == 2
