"""A test gives way to a job: it does not begin while one runs, and its process can be found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.node_tests.end_on_job_start import gives_way_to_jobs
from agent.node_tests.results import NodeTestSkipped


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "jobs").mkdir()
    return str(tmp_path / "mark"), str(tmp_path / "jobs")


def test_mark_holds_the_process_id_while_the_test_runs(places: tuple[str, str]) -> None:
    with gives_way_to_jobs(*places):
        assert Path(places[0]).read_text() == f"{os.getpid()}\n"
    assert Path(places[0]).read_text() == ""


def test_test_does_not_begin_on_a_node_with_a_job(places: tuple[str, str]) -> None:
    (Path(places[1]) / "12").mkdir()
    with pytest.raises(NodeTestSkipped, match="a job is on this node"), gives_way_to_jobs(*places):
        pytest.fail("the test began")
    assert Path(places[0]).read_text() == ""


def test_two_tests_do_not_run_on_one_node(places: tuple[str, str]) -> None:
    with gives_way_to_jobs(*places), pytest.raises(NodeTestSkipped, match="another test"), gives_way_to_jobs(*places):
        pytest.fail("the second test began")
