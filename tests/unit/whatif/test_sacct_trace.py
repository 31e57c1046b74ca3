"""Jobs of `sacct -a -X -P`."""

from __future__ import annotations

from headway.whatif.sacct_trace import COLUMNS, is_sacct, read_sacct

_ROW = {
    "JobID": "7", "User": "alice", "Account": "vision", "Partition": "train", "QOS": "vision", "Submit": "1000",
    "Eligible": "1000", "Start": "1060", "End": "1160", "ElapsedRaw": "100", "TimelimitRaw": "30", "State": "COMPLETED",
    "ReqTRES": "billing=8000,cpu=32,gres/gpu=16,mem=64G,node=2",
    "AllocTRES": "cpu=32,mem=64G", "ReqCPUS": "32", "NNodes": "2", "Constraints": "",
}  # fmt: skip


def _text(*changes: dict[str, str]) -> str:
    return "\n".join(["|".join(COLUMNS), *("|".join({**_ROW, **one}.values()) for one in changes)]) + "\n"


def test_a_job_has_its_resources_by_node() -> None:
    (job,), left_out = read_sacct(_text({}), 2000)
    assert (job.nodes, job.cpus, job.gpus, job.memory_mib, job.run_s) == (2, 16, 8, 32768, 100)
    assert (job.start, job.end, job.begin, job.cancelled_at, left_out) == (1060, 1160, 0, 0, {})


def test_cpus_and_memory_that_a_gpu_gave_are_left_to_the_defaults() -> None:
    (job,), _ = read_sacct(_text({"AllocTRES": "cpu=384,gres/gpu=16,mem=1T,node=2"}), 2000)
    assert (job.cpus, job.memory_mib, job.gpus) == (0, 0, 8)


def test_a_job_that_reached_its_limit_reaches_it_again() -> None:
    (job,), _ = read_sacct(_text({"State": "TIMEOUT", "ElapsedRaw": "1805"}), 2000)
    assert job.run_s > 30 * 60


def test_a_job_that_was_cancelled_while_it_waited_waits_until_then() -> None:
    (job,), _ = read_sacct(_text({"State": "CANCELLED by 0", "Start": "None", "End": "1500", "ElapsedRaw": "0"}), 2000)
    assert (job.start, job.cancelled_at) == (0, 1500)


def test_a_job_that_was_eligible_later_begins_then() -> None:
    (job,), _ = read_sacct(_text({"Eligible": "1030"}), 2000)
    assert job.begin == 1030


def test_lines_that_are_no_job_are_counted() -> None:
    jobs, left_out = read_sacct(_text({"User": ""}, {"State": "NODE_FAIL", "Start": "Unknown"}) + "8|alice\n", 2000)
    assert not jobs
    assert left_out == {
        "its line has no user or submission": 1,
        "it ended without a start (NODE_FAIL)": 1,
        "its line is incomplete": 1,
    }


def test_the_line_of_names_shows_the_format() -> None:
    assert is_sacct(_text())
    assert not is_sacct("; UnixStartTime: 1\n1 2 3\n")
