"""Charts of a job's use appear once it has started; those of GPUs only if it has some."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.web.views.charts.job_charts import UseCharts, use_charts
from tests.support.clusters import builders

OF_GPUS = "series=gpu_utilisation&series=gpu_memory&series=gpu_power&series=gpu_temperature&"
OF_NODES = "series=job_cpu&series=job_memory&series=job_network&series=job_disk_io"


@pytest.mark.parametrize("state", ["PENDING", "REQUEUED"])
def test_waiting_job_has_no_charts_of_use(state: str) -> None:
    job = builders.job(7, state, gpus=8, start_time=5000)
    assert use_charts("lab", job, simulated=True) is None


def test_started_job_has_charts_of_its_nodes_and_gpus() -> None:
    job = builders.job(7, "RUNNING", gpus=8, start_time=5000)
    address = "/api/v1/clusters/lab/metrics?job=7&"
    assert use_charts("lab", job, simulated=True) == UseCharts(f"{address}{OF_GPUS}{OF_NODES}", True)
    assert use_charts("lab", replace(job, gpus=0), simulated=True) == UseCharts(f"{address}{OF_NODES}", False)
