"""Words in place of values, as sacct prints them, are understood."""

from __future__ import annotations

from headway.slurm.accounting.sacct_values import (
    parse_integer,
    parse_nodes,
    parse_state,
    parse_time_limit_s,
    parse_unix_time,
)


def test_missing_numbers_and_times_are_zero() -> None:
    assert [parse_integer(text) for text in ("", "12")] == [0, 12]
    assert [parse_unix_time(text) for text in ("Unknown", "None", "1700000000")] == [0, 0, 1_700_000_000]


def test_time_limit_is_in_seconds_and_may_be_missing() -> None:
    assert [parse_time_limit_s(text) for text in ("90", "UNLIMITED", "Partition_Limit")] == [5400, None, None]


def test_job_that_never_started_has_no_nodes() -> None:
    assert parse_nodes("None assigned") == ()
    assert parse_nodes("lab-1-[1-2]") == ("lab-1-1", "lab-1-2")


def test_state_names_no_user() -> None:
    assert parse_state("CANCELLED by 20000") == "CANCELLED"
