"""GPU charts appear once a job has started, and mark each further run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.schemas.jobs import JobRunOut, JobRunsOut
from headway.web.views.charts.job_charts import GpuCharts, gpu_charts
from tests.support.clusters import builders

ASKED = "series=gpu_utilisation&series=gpu_memory&series=gpu_power&series=gpu_temperature"


def runs(*starts: int) -> JobRunsOut:
    return JobRunsOut(
        runs=[JobRunOut(state="RUNNING", submit_time=1, start_time=at, end_time=0, nodelist="") for at in starts]
    )


@pytest.mark.parametrize("state", ["PENDING", "REQUEUED"])
def test_waiting_job_has_no_gpu_charts(state: str) -> None:
    job = builders.job(7, state, gpus=8, start_time=5000)
    assert gpu_charts("lab", job, runs(), simulated=True) is None
    assert gpu_charts("lab", replace(job, state="RUNNING", gpus=0), runs(5000), simulated=True) is None


def test_job_charts_mark_each_further_run() -> None:
    job = builders.job(7, "RUNNING", gpus=8, start_time=5000)
    address = f"/api/v1/clusters/lab/metrics?job=7&{ASKED}"
    assert gpu_charts("lab", job, runs(5000), simulated=True) == GpuCharts(address, True, ())
    assert gpu_charts("lab", job, runs(3000, 5000), simulated=False) == GpuCharts(address, False, ((5000, "run 2"),))
