"""The named queries that Headway sends to a cluster's Prometheus. No I/O; only validated names become part of a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from headway.render.monitoring.prometheus import SCRAPE_S

MOST_LINES = 64  # lines of one chart; with more GPUs, only the lowest, mean and highest values are drawn
Over = Literal["node", "job", "cluster"]
# share of the expected samples that Prometheus must have of a GPU; single samples may be missing
_MIN_SAMPLES_SHARE = 0.9
_GPU_USAGE = {
    "most": "max by (hpc_job) (max_over_time(DCGM_FI_DEV_GPU_UTIL{{hpc_job!=''}}[{window}s]))",
    "least": "min by (hpc_job) (min_over_time(DCGM_FI_DEV_GPU_UTIL{{hpc_job!=''}}[{window}s]))",
    "traffic": "max by (hpc_job) (max_over_time(DCGM_FI_DEV_MEM_COPY_UTIL{{hpc_job!=''}}[{window}s]))",
    # The queries above only cover GPUs with samples. This one counts the GPUs that had samples all the time; the usage
    # of other GPUs is unknown.
    "observed_gpus": "count by (hpc_job) (count_over_time(DCGM_FI_DEV_GPU_UTIL{{hpc_job!=''}}[{window}s]) >= {samples})",
}


@dataclass(frozen=True, slots=True)
class Series:
    """A chart. `metric`: {} is the place of the labels. `within`: the function that reduces the values of one step to
    one."""

    key: str
    title: str
    unit: str
    metric: str
    over: tuple[Over, ...]
    within: str = "avg_over_time"
    of_gpu: bool = True  # one line per GPU; otherwise one per node, or one in all


_GPU: tuple[Over, ...] = ("node", "job")
SERIES: dict[str, Series] = {
    series.key: series
    for series in (
        Series("gpu_utilisation", "GPU utilisation", "%", "DCGM_FI_DEV_GPU_UTIL{}", _GPU),
        Series("gpu_memory", "GPU memory in use", "MiB", "DCGM_FI_DEV_FB_USED{}", _GPU),
        Series("gpu_power", "GPU power", "W", "DCGM_FI_DEV_POWER_USAGE{}", _GPU),
        Series("gpu_temperature", "GPU temperature", "°C", "DCGM_FI_DEV_GPU_TEMP{}", _GPU, "max_over_time"),
        Series(
            "gpu_ecc_corrected",
            "ECC errors, corrected",
            "errors",
            "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{}",
            _GPU,
            "max_over_time",
        ),
        Series(
            "gpu_ecc_uncorrected",
            "ECC errors, uncorrected",
            "errors",
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{}",
            _GPU,
            "max_over_time",
        ),
        Series("gpu_nvlinks", "NVLinks that are up", "links", "headway_gpu_nvlinks_active{}", _GPU, "min_over_time"),
        Series(
            "gpu_nvlink_errors",
            "NVLink errors",
            "errors",
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{}",
            _GPU,
            "max_over_time",
        ),
        Series("load", "Load of the machine", "processes", "node_load1{}", ("node",), of_gpu=False),
        Series("utilisation", "GPU utilisation, mean", "%", "avg(DCGM_FI_DEV_GPU_UTIL{})", ("cluster",), of_gpu=False),
        Series("power", "GPU power, all", "W", "sum(DCGM_FI_DEV_POWER_USAGE{})", ("cluster",), of_gpu=False),
        Series("temperature", "Hottest GPU", "°C", "max(DCGM_FI_DEV_GPU_TEMP{})", ("cluster",), of_gpu=False),
        Series(
            "machines_up", "Machines that answer", "machines", 'sum(up{job="machines"})', ("cluster",), of_gpu=False
        ),
    )
}


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """One query to Prometheus. Each row of its result becomes a line of the series `key`, named by its labels or by
    `line`."""

    key: str
    text: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One line of a result: its labels, and pairs of (unix seconds, value)."""

    key: str
    line: str
    labels: Mapping[str, str]
    values: tuple[tuple[float, float], ...]


def queries(keys: Iterable[str], over: Over, name: str, step_s: int, gpus: int = 0) -> list[MetricQuery]:
    """Returns the queries of these series. `name`: a node's name or a job's number; "" for the cluster. `gpus`: GPUs of
    the job; with more than MOST_LINES, three queries (lowest, mean, highest) replace the lines per GPU."""
    return [query for key in keys for query in _queries(SERIES[key], over, name, step_s, gpus)]


def gpu_usage_queries(window_s: int) -> list[MetricQuery]:
    """Returns the queries of the GPU usage of each job over the last `window_s` seconds. Their keys are the fields of
    GpuUsage; the label `hpc_job` of a row is the job's number."""
    samples = max(1, int(_MIN_SAMPLES_SHARE * window_s / SCRAPE_S))
    return [MetricQuery(key, text.format(window=window_s, samples=samples)) for key, text in _GPU_USAGE.items()]


def _queries(series: Series, over: Over, name: str, step_s: int, gpus: int) -> list[MetricQuery]:
    if over == "cluster":
        return [MetricQuery(series.key, series.metric.replace("{}", ""), series.title)]
    label = "node" if over == "node" else "hpc_job"
    chosen = series.metric.replace("{}", f'{{{label}="{name}"}}')
    values = f"{series.within}({chosen}[{max(step_s, 2 * SCRAPE_S)}s])"
    if not series.of_gpu:
        return [MetricQuery(series.key, f"max({values})", series.title)]
    if gpus > MOST_LINES:
        return [
            MetricQuery(series.key, f"{how}({values})", word)
            for how, word in (("min", "lowest"), ("avg", "mean"), ("max", "highest"))
        ]
    return [MetricQuery(series.key, f"max by (node, gpu) ({values})")]
