"""The search over clusters, jobs and nodes: what is found, and in which order."""

from __future__ import annotations

from headway.services.read_model.quick_search import MOST, search_clusters
from headway.services.read_model.snapshot import Snapshot
from tests.support.clusters import builders


def _ids(snapshots: list[Snapshot], text: str, current: str = "") -> list[tuple[str, int]]:
    return [(found.cluster, found.job.id) for found in search_clusters(snapshots, text, current).jobs]


def test_an_empty_text_finds_all_clusters_and_no_jobs() -> None:
    found = search_clusters([Snapshot("b", jobs=(builders.job(1),)), Snapshot("a")], " ")
    assert found.clusters == ("a", "b")
    assert found.jobs == found.nodes == ()


def test_exact_names_come_first_then_beginnings_then_running_jobs() -> None:
    jobs = (
        builders.job(1, "RUNNING", name="pretrain"),
        builders.job(2, "PENDING", name="training"),
        builders.job(3, "RUNNING", name="training"),
        builders.job(4, "COMPLETED", name="Train"),
    )
    assert [number for _, number in _ids([Snapshot("a", jobs=jobs)], "train")] == [4, 3, 2, 1]


def test_a_number_finds_jobs_that_begin_with_it_and_not_those_that_contain_it() -> None:
    jobs = tuple(builders.job(number, name="x") for number in (7, 17, 70))
    assert [number for _, number in _ids([Snapshot("a", jobs=jobs)], "7")] == [7, 70]


def test_an_array_is_found_once_and_a_task_by_its_own_number() -> None:
    tasks = tuple(builders.job(100 + n, name="sweep", array_job_id=100, array_task=str(n)) for n in range(20))
    assert len(_ids([Snapshot("a", jobs=tasks)], "sweep")) == 1
    assert _ids([Snapshot("a", jobs=tasks)], "100_4") == [("a", 104)]


def test_jobs_of_a_user_are_found_after_those_with_the_name() -> None:
    jobs = (builders.job(1, name="x", user="bob"), builders.job(2, name="bobsled", user="eve"))
    assert [number for _, number in _ids([Snapshot("a", jobs=jobs)], "bob")] == [2, 1]


def test_the_current_cluster_comes_first_and_results_are_limited() -> None:
    jobs = tuple(builders.job(number, name="x") for number in range(1, 2 * MOST))
    found = _ids([Snapshot("a", jobs=jobs), Snapshot("b", jobs=jobs)], "x", "b")
    assert found == [("b", number) for number in range(1, MOST + 1)]


def test_nodes_are_found_by_a_part_of_their_name() -> None:
    nodes = (builders.node("gpu-1"), builders.node("gpu-10"), builders.node("cpu-1"))
    found = search_clusters([Snapshot("a", nodes=nodes)], "GPU-1")
    assert [one.node.name for one in found.nodes] == ["gpu-1", "gpu-10"]
