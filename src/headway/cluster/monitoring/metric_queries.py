"""The named queries that Headway sends to a cluster's Prometheus. No I/O; only validated names become part of a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from headway.render.monitoring.prometheus import SCRAPE_S

MOST_LINES = 64  # lines of one chart; with more GPUs, only the lowest, mean and highest values are drawn
MEAN_LINE = "mean"  # the name of the line of mean values
Over = Literal["node", "job", "cluster"]
# share of the expected samples that Prometheus must have of a GPU; single samples may be missing
_MIN_SAMPLES_SHARE = 0.9
_RATE_WINDOW_S = 4 * SCRAPE_S
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
    one. `lines`: of a chart that is no metric of Prometheus by itself, the name and query of each line; OF is the place of
    the labels and WINDOW that of the seconds over which a counter's rate is taken."""

    key: str
    title: str
    unit: str
    metric: str
    over: tuple[Over, ...]
    within: str = "avg_over_time"
    of_gpu: bool = True  # one line per GPU; otherwise one per node, or one in all
    lines: tuple[tuple[str, str], ...] = ()
    line_label: str = ""  # the label of Prometheus that names a line; without it the name in `lines`


_GPU: tuple[Over, ...] = ("node", "job")
_MACHINE: tuple[Over, ...] = ("node", "cluster")
# Interfaces that carry the traffic of others: bridges, bonds, VLANs, tunnels and the host's ends of containers.
_CARDS = 'device!~"veth.*|br[-0-9].*|docker.*|podman.*|cni.*|virbr.*|tun.*|tap.*|bond.*|team.*|vlan.*|.*[.].*"'
_WHOLE_DISKS = 'device!~"dm-.*|md.*"'
_ON_NODES_OF_JOB = " and on (node) headway_job_memory_bytes{OF}"


def _rate(metric: str, labels: str) -> str:
    chosen = f"{{{labels}}}" if labels else ""
    return f"sum by (node) (rate({metric}{chosen}[WINDOWs])) / 1e6"


def _traffic(labels: str) -> tuple[tuple[str, str], ...]:
    return (
        ("received", _rate("node_network_receive_bytes_total", f"{labels}{_CARDS}")),
        ("sent", _rate("node_network_transmit_bytes_total", f"{labels}{_CARDS}")),
        ("InfiniBand received", _rate("node_infiniband_port_data_received_bytes_total", labels.rstrip(","))),
        ("InfiniBand sent", _rate("node_infiniband_port_data_transmitted_bytes_total", labels.rstrip(","))),
    )


def _disk_io(labels: str) -> tuple[tuple[str, str], ...]:
    return (
        ("read", _rate("node_disk_read_bytes_total", f"{labels}{_WHOLE_DISKS}")),
        ("written", _rate("node_disk_written_bytes_total", f"{labels}{_WHOLE_DISKS}")),
    )


def _summed(lines: tuple[tuple[str, str], ...], after: str = "") -> tuple[tuple[str, str], ...]:
    return tuple((name, f"sum({query}{after})") for name, query in lines)


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
        Series(
            "cpu",
            "CPUs",
            "%",
            "",
            _MACHINE,
            lines=(
                (
                    "busy",
                    '100 * (1 - avg(rate(node_cpu_seconds_total{OF,mode="idle"}[WINDOWs]))'
                    ' - avg(rate(node_cpu_seconds_total{OF,mode="iowait"}[WINDOWs])))',
                ),
                ("waiting for disks", '100 * avg(rate(node_cpu_seconds_total{OF,mode="iowait"}[WINDOWs]))'),
            ),
        ),
        Series(
            "memory",
            "Memory",
            "MiB",
            "",
            _MACHINE,
            lines=(
                ("in use", "sum(node_memory_MemTotal_bytes{OF} - node_memory_MemAvailable_bytes{OF}) / 2^20"),
                ("files kept", "sum(node_memory_Cached_bytes{OF}) / 2^20"),
            ),
        ),
        Series("network", "Network", "MB/s", "", _MACHINE, lines=_summed(_traffic("OF,"))),
        Series("disk_io", "Disks", "MB/s", "", _MACHINE, lines=_summed(_disk_io("OF,"))),
        Series(
            "disk_space",
            "Disk space in use",
            "%",
            "",
            ("node",),
            lines=(
                (
                    "",
                    "max by (mountpoint) (100 * (1 - node_filesystem_avail_bytes{OF} / node_filesystem_size_bytes{OF}))",
                ),
            ),
            line_label="mountpoint",
        ),
        Series(
            "job_cpu",
            "CPUs in use",
            "CPUs",
            "",
            ("job",),
            lines=(("", "sum by (node) (rate(headway_job_cpu_seconds_total{OF}[WINDOWs]))"),),
            line_label="node",
        ),
        Series(
            "job_memory",
            "Memory in use",
            "MiB",
            "",
            ("job",),
            lines=(("", "max by (node) (headway_job_memory_bytes{OF}) / 2^20"),),
            line_label="node",
        ),
        Series(
            "job_network",
            "Network of its nodes",
            "MB/s",
            "",
            ("job",),
            lines=_summed(_traffic(""), _ON_NODES_OF_JOB),
        ),
        Series(
            "job_disk_io",
            "Disks of its nodes",
            "MB/s",
            "",
            ("job",),
            lines=_summed(_disk_io(""), _ON_NODES_OF_JOB),
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


def queries(
    keys: Iterable[str], over: Over, name: str, step_s: int, gpus: int = 0, nodes: int = 0
) -> list[MetricQuery]:
    """Returns the queries of these series. `name`: a node's name or a job's number; "" for the cluster. `gpus`, `nodes`: of
    the job; with more than MOST_LINES, three queries (lowest, mean, highest) replace the lines per GPU or node."""
    return [query for key in keys for query in _queries(SERIES[key], over, name, step_s, gpus, nodes)]


def gpu_usage_queries(window_s: int) -> list[MetricQuery]:
    """Returns the queries of the GPU usage of each job over the last `window_s` seconds. Their keys are the fields of
    GpuUsage; the label `hpc_job` of a row is the job's number."""
    samples = max(1, int(_MIN_SAMPLES_SHARE * window_s / SCRAPE_S))
    return [MetricQuery(key, text.format(window=window_s, samples=samples)) for key, text in _GPU_USAGE.items()]


def _queries(series: Series, over: Over, name: str, step_s: int, gpus: int, nodes: int) -> list[MetricQuery]:
    if series.lines:
        return _composed(series, over, name, step_s, nodes)
    if over == "cluster":
        return [MetricQuery(series.key, series.metric.replace("{}", ""), series.title)]
    label = "node" if over == "node" else "hpc_job"
    chosen = series.metric.replace("{}", f'{{{label}="{name}"}}')
    values = f"{series.within}({chosen}[{max(step_s, 2 * SCRAPE_S)}s])"
    if not series.of_gpu:
        return [MetricQuery(series.key, f"max({values})", series.title)]
    if gpus > MOST_LINES:
        return _extremes(series, values)
    return [MetricQuery(series.key, f"max by (node, gpu) ({values})")]


def _composed(series: Series, over: Over, name: str, step_s: int, nodes: int) -> list[MetricQuery]:
    """Returns one query for all lines of a series that is composed of several metrics."""
    chosen = {"node": f'node="{name}"', "job": f'hpc_job="{name}"', "cluster": 'role="node"'}[over]
    window_s = str(max(step_s, _RATE_WINDOW_S))  # a rate needs two samples, also if one is missing
    texts = [(line, text.replace("OF", chosen).replace("WINDOW", window_s)) for line, text in series.lines]
    if series.line_label:
        [(_, text)] = texts
        return _extremes(series, text) if nodes > MOST_LINES else [MetricQuery(series.key, text)]
    return [
        MetricQuery(series.key, " or ".join(f'label_replace({text}, "line", "{line}", "", "")' for line, text in texts))
    ]


def _extremes(series: Series, values: str) -> list[MetricQuery]:
    return [
        MetricQuery(series.key, f"{how}({values})", word)
        for how, word in (("min", "lowest"), ("avg", MEAN_LINE), ("max", "highest"))
    ]
