"""View functions of the overview: job keys, changed parts, banners, labels and wording."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.schemas.clusters import CheckOut, StatusOut
from headway.schemas.jobs import ProgressOut
from headway.schemas.nodes.incidents import IncidentOut, RequeuedJobOut, TimesOut
from headway.schemas.nodes.nodes import GpuOut, NodeOut
from headway.services.read_model.overview import Overview
from headway.web.pages.cluster.home import gpu_counts
from headway.web.views.overview import ROWS, assign_keys, overview_parts
from headway.web.views.overview_models import (
    IncidentsView,
    NodesView,
    QueueView,
    SummaryView,
    TrainingView,
)
from tests.support.clusters import builders


def job(number: int, state: str = "RUNNING", **changes: object) -> JobState:
    return builders.job(number, state, **{"name": f"job{number}", "gpus": 0, **changes})


def node(name: str, *, held: tuple[int | None, ...] = (None,) * 8, **changes: object) -> NodeOut:
    gpus = [GpuOut(index=i, job_id=j) for i, j in enumerate(held)]
    values = {"name": name, "role": "node", "leaf": "leaf1", "machine": "running", "states": ["IDLE"], "gpus": gpus}
    return NodeOut.model_validate({**values, **changes})


def overview(
    *jobs: JobState, nodes: tuple[NodeOut, ...] = (), figures: dict[int, ProgressOut] | None = None, **changes: object
) -> Overview:
    cluster = builders.cluster_out(**changes)
    return Overview(StatusOut(cluster=cluster, checks=[], nodes=list(nodes)), jobs, progress=figures or {})


def test_job_keeps_its_key_through_requeue() -> None:
    slots: dict[int, int] = {}
    first = assign_keys(slots, [job(104), job(105, "PENDING")])
    assert set(first) == {104}
    assert assign_keys(slots, [job(104, "PENDING")])[104] == first[104]
    assert assign_keys(slots, [job(104), job(96)])[104] == first[104]


def test_jobs_get_distinct_key_letters() -> None:
    keys = assign_keys({}, [job(number) for number in range(8, 60)])
    assert len({key.letter for key in keys.values()}) == 52
    assert len({(key.hue, key.pattern) for number, key in keys.items() if number < 40}) == 32


def test_keys_of_ended_jobs_are_reused() -> None:
    slots: dict[int, int] = {}
    old = assign_keys(slots, [job(104)])[104]
    assert assign_keys(slots, [job(104, "COMPLETED"), job(112)]) == {112: old}


def changed(before: dict[str, object], after: dict[str, object]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name in after if before[name] != after[name]}


def test_time_alone_changes_no_part() -> None:
    nodes = (node("lab-1-1", held=(7,) * 8),)
    before = overview_parts(overview(job(7), nodes=nodes), {})
    assert changed(before, overview_parts(overview(job(7), nodes=nodes, as_of=1060.0), {})) == set()


def test_training_step_changes_only_training_and_chart() -> None:
    before = overview_parts(overview(job(7), figures={7: ProgressOut(step=1, loss=4.0, series=[(1, 4.0)])}), {})
    after = overview_parts(
        overview(job(7), figures={7: ProgressOut(step=2, loss=3.9, series=[(1, 4.0), (2, 3.9)])}), {}
    )
    assert changed(before, after) == {"training_panel", "chart"}
    assert after["chart"] == {"job": 7, "hue": 0, "steps": [1, 2], "loss": [4.0, 3.9]}


def drawn(*jobs: JobState, figures: tuple[int, ...] = (), chosen: int | None = None) -> int:
    progress = {number: ProgressOut(step=1, loss=4.0, series=[(1, 4.0)]) for number in figures}
    chart = overview_parts(overview(*jobs, figures=progress), {}, chosen)["chart"]
    assert isinstance(chart, dict)
    return int(chart["job"])


def test_chart_shows_chosen_or_largest_reporting_job() -> None:
    assert drawn() == 0
    assert drawn(job(1, "PENDING")) == 0
    assert drawn(job(1, gpus=32), job(2, gpus=8), figures=(2,)) == 2
    assert drawn(job(1, gpus=8), job(2, gpus=32), figures=(1, 2)) == 2
    assert drawn(job(1, "PENDING", gpus=32), job(2, gpus=8), figures=(1, 2)) == 2
    assert drawn(job(1, "PENDING"), figures=(1,)) == 1  # requeued: its curve stays in sight
    assert drawn(job(1), job(2, "COMPLETED"), figures=(1,), chosen=2) == 2
    assert drawn(job(1), figures=(1,), chosen=99) == 1


def fabric(*nodes: NodeOut, **changes: object) -> NodesView:
    view = overview_parts(overview(job(7), nodes=nodes, **changes), {})["nodes_panel"]
    assert isinstance(view, NodesView)
    return view


def test_nodes_are_listed_under_leaf_in_natural_order() -> None:
    view = fabric(
        node("lab-2-1", leaf="leaf2"), *(node(f"lab-1-{i}") for i in (10, 2, 1)), node("lab-head", role="head")
    )
    assert [leaf.name for leaf in view.leaves] == ["leaf1", "leaf2"]
    assert [n.name for n in view.leaves[0].nodes] == ["lab-1-1", "lab-1-2", "lab-1-10"]
    assert [head.name for head in view.heads] == ["lab-head"]


def test_node_label_lists_jobs_holding_gpus() -> None:
    view = fabric(node("lab-1-1", held=(7, 7, 9, None, None, None, None, None))).leaves[0].nodes[0]
    assert view.label == "8 GPUs, 2 allocated to job 7 job7, 1 allocated to job 9 "
    assert view.gpus_used == 3
    down = fabric(node("lab-1-1", states=["DOWN"])).leaves[0].nodes[0]
    assert down.label == "8 GPUs, none usable"


def test_notice_lists_down_nodes_with_reasons() -> None:
    nodes = [node(f"lab-1-{i}", states=["DOWN"], reason="not responding") for i in range(1, 6)]
    notices = overview_parts(overview(nodes=tuple(nodes), state="degraded"), {})["down_banners"]
    assert isinstance(notices, tuple)
    assert notices[0].title == "5 nodes are down."
    assert notices[0].text.endswith("lab-1-3: not responding; and 2 more")


def test_long_queue_is_truncated_and_counted() -> None:
    jobs = [job(number, "PENDING", submit_time=number) for number in range(1, 251)]
    queue = overview_parts(overview(*jobs, jobs_pending=10_000), {})["queue_panel"]
    assert isinstance(queue, QueueView)
    (group,) = queue.groups
    assert len(group.rows) == ROWS
    assert group.more == 250 - ROWS
    assert queue.pending == 10_000


def test_waiting_tasks_that_share_a_record_are_counted() -> None:
    waiting = job(104, "PENDING", array_job_id=104, array_task="8-99")
    running = job(111, array_job_id=104, array_task="7")
    queue = overview_parts(overview(waiting, running), {})["queue_panel"]
    assert isinstance(queue, QueueView)
    assert [row.label for group in queue.groups for row in group.rows] == ["104_7", "104 · 92 tasks"]


def test_failed_checks_come_first() -> None:
    status = overview().status.model_copy(
        update={"checks": [CheckOut(name="a", ok=True, message=""), CheckOut(name="b", ok=False, message="")]}
    )
    view = overview_parts(Overview(status), {})["readiness_panel"]
    assert [row.name for row in view.rows] == ["b", "a"]  # type: ignore[attr-defined]
    assert view.ok == 1  # type: ignore[attr-defined]


def test_parts_mark_simulated_gpus() -> None:
    made = overview_parts(overview(job(7)), {})
    for name, kind in (("summary", SummaryView), ("nodes_panel", NodesView), ("training_panel", TrainingView)):
        view = made[name]
        assert isinstance(view, kind)
        assert view.simulated


def incident(number: int, state: str, times: TimesOut, *jobs: int) -> IncidentOut:
    moved = [RequeuedJobOut(job=job, requeued_at=1.0) for job in jobs]
    return IncidentOut(
        number=number, cluster="lab", node="lab-1-1", what="XID 79", action="reboot", state=state, opened_at=1000.0,
        times=times, jobs=moved,
    )  # fmt: skip


def test_open_faults_come_first_with_their_timeline() -> None:
    incidents = [incident(number, "returned", TimesOut(detect_s=1.0)) for number in range(9, 3, -1)]
    incidents.append(incident(2, "out of service", TimesOut(detect_s=0.5, drain_s=1.5)))
    incidents.append(incident(1, "draining", TimesOut(detect_s=0.5, drain_s=1.0, requeue_s=2.0), 7))
    shown = overview()
    faults = overview_parts(replace(shown, incidents=tuple(incidents)), {})["incidents_panel"]
    assert isinstance(faults, IncidentsView)
    assert [(row.number, row.kind) for row in faults.rows] == [(2, "out"), (1, "open"), (9, "done"), (8, "done")]
    assert (faults.open, faults.more) == (2, 4)
    assert [mark.word for mark in faults.rows[0].course] == ["seen", "drained"]
    course = [(mark.word, mark.after_s) for mark in faults.rows[1].course]
    assert course == [("seen", 0.5), ("drained", 1.0), ("requeued", 2.0), ("running", None), ("new step", None)]


def tasks(array: int, *states: str, **changes: object) -> list[JobState]:
    made = [job(array + i, state, **changes) for i, state in enumerate(states)]
    return [replace(one, array_job_id=array, array_task=str(i)) for i, one in enumerate(made)]


def test_array_is_one_row_of_the_queue_with_the_gpus_of_its_tasks() -> None:
    array = tasks(40, *["RUNNING"] * 3, "PENDING", "COMPLETED", "FAILED", gpus=1)
    view = overview_parts(overview(*array, job(20, gpus=8)), {})["queue_panel"]
    assert isinstance(view, QueueView)
    shown = [[(row.page, row.label, row.gpus) for row in group.rows] for group in view.groups]
    assert shown == [
        [("20", "20", 8), ("40", "40 · 3 tasks", 3)],
        [("40_3", "40_3", 1)],
        [("40", "40 · 2 tasks", 2)],
    ]


def test_all_tasks_of_an_array_have_the_same_key() -> None:
    keys = assign_keys({}, [*tasks(40, "RUNNING", "RUNNING", "PENDING"), job(50)])
    assert keys[40] == keys[41] == keys[42] != keys[50]


def test_overview_and_home_count_the_same_gpus() -> None:
    nodes = (
        node("lab-1-1", held=(7,) * 8, usable=True),
        node("lab-1-2", usable=True),
        node("lab-2-1", role="spare", states=["IDLE"], usable=True),
    )
    summary = overview_parts(overview(job(7, gpus=8), nodes=nodes, gpus_used=8), {})["summary"]
    assert isinstance(summary, SummaryView)
    counted = gpu_counts(nodes)
    assert (summary.gpus, summary.gpus_used, summary.spare_gpus) == (
        sum(counted.values()),
        counted["used"],
        counted["spare"],
    )
