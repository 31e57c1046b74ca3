"""What Slurm says now, in Slurm's own words; parsed by headway.slurm, shown by the page and the commands."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeState:
    name: str
    states: tuple[str, ...]  # ("IDLE",), ("DOWN", "NOT_RESPONDING"), ("MIXED", "DRAIN")
    reason: str
    gpus: int
    gpus_used: int
    gpus_used_index: tuple[int, ...]  # which of them
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    partitions: tuple[str, ...]
    reservation: str = ""
    boot_time: int = 0  # unix seconds

    @property
    def usable(self) -> bool:
        bad = {"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "POWERED_DOWN", "INVALID_REG", "FUTURE"}
        return not bad.intersection(self.states)


@dataclass(frozen=True, slots=True)
class JobState:
    id: int
    name: str
    user: str
    account: str
    partition: str
    state: str  # "PENDING", "RUNNING", ...
    reason: str
    nodes: tuple[str, ...]
    node_count: int
    gpus: int
    submit_time: int
    start_time: int
    end_time: int
    time_limit_s: int | None
    restarts: int
    stdout: str
    stderr: str
    command: str
    workdir: str
    priority: int = 0
    exit_code: int = 0
    qos: str = ""
    array_job_id: int = 0
    array_task: str = ""
    gpu_indexes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # node -> GPU numbers


@dataclass(frozen=True, slots=True)
class Check:
    """One line of readiness: `headway status` prints them, one (ok, message) a thing."""

    name: str
    ok: bool
    message: str
