"""A cluster backend that answers what a test registers, and refuses every other call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path
from typing import Any, Self

from headway.domain.access.user_change_results import UserUpdateResult
from headway.domain.cluster import Cluster
from headway.domain.machines.scale_in_deadline import Deadline
from headway.domain.serving.service_proxy import ProxySettings
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Fault, InvalidSpec, Refused
from headway.schemas.clusters import Document
from headway.schemas.jobs import LogPartOut
from headway.services.cluster_backend import ResolvedCluster
from tests.support.clusters import builders


class _Answers(dict[str, Any]):
    """Answers by call. A name that is no call fails the test."""

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.update(answers)

    def __setitem__(self, call: str, answer: Any) -> None:
        assert call in CALLS, f"no part has a call {call}"
        super().__setitem__(call, answer)

    def update(self, answers: Mapping[str, Any]) -> None:  # type: ignore[override]
        for call, answer in answers.items():
            self[call] = answer

    def __ior__(self, answers: Mapping[str, Any]) -> Self:  # type: ignore[override,misc]
        self.update(answers)
        return self

    def setdefault(self, call: str, answer: Any) -> Any:  # type: ignore[override]
        assert call in CALLS, f"no part has a call {call}"
        return super().setdefault(call, answer)


class _Part:
    def __init__(self, fake: FakeBackend) -> None:
        self._fake = fake


class FakeLifecycle(_Part):
    """Stands in for services.cluster_backend.ClusterLifecycle."""

    async def resolve(self, document: Document) -> ResolvedCluster:
        spec = document.spec
        if "fault" in spec:
            raise InvalidSpec([Fault("nodes", "must be at least 1"), Fault("fault", "unknown field")])
        warnings = (Fault("spares", "no spare", level="warning"),) if spec.get("warn") else ()
        if spec["name"] in self._fake.whole:
            return ResolvedCluster(self._fake.whole[spec["name"]], warnings)
        more = self._fake.clusters.get(spec["name"], {})
        return ResolvedCluster(builders.cluster(spec["nodes"], name=spec["name"], **more), warnings)

    async def plan(self, cluster: Cluster) -> Any:
        return await self._fake.call("plan", cluster)

    async def apply(
        self,
        cluster: Cluster,
        report: Any,
        deadline: Deadline | None = None,
        waiting: Any = None,
        *,
        restarts: bool = True,
    ) -> Any:
        self._fake.deadline, self._fake.waiting, self._fake.restarts = deadline, waiting, restarts
        return await self._fake.call("apply", cluster, report)

    async def take_down(self, cluster: Cluster, report: Any, delete_data: bool) -> Any:
        return await self._fake.call("take_down", cluster, report, delete_data)

    async def replace_machine(self, cluster: Cluster, report: Any, node: str, since: float | None) -> Any:
        return await self._fake.call("replace_machine", cluster, report, node, since)

    async def machines(self, cluster: Cluster) -> Any:
        return await self._fake.call("machines", cluster)

    async def readiness_checks(self, cluster: Cluster) -> Any:
        return await self._fake.call("readiness_checks", cluster)

    async def slurm_export(self, cluster: Cluster) -> Any:
        return await self._fake.call("slurm_export", cluster)


class FakeBackups(_Part):
    """Stands in for services.cluster_backend.ClusterBackups."""

    async def back_up(self, cluster: Cluster, about: Any, report: Any, path: Path, header: Any, key: bytes) -> Any:
        return await self._fake.call("back_up", cluster, about, report, path, header, key)

    async def restore(self, cluster: Cluster, report: Any, path: Path, key: bytes, ref: str) -> Any:
        return await self._fake.call("restore", cluster, report, path, key, ref)


class FakeKeyRotation(_Part):
    """Stands in for services.cluster_backend.ClusterKeyRotation."""

    async def rotate_key(self, cluster: Cluster, report: Any, what: str, ref: str, begins: Any) -> Any:
        if not isinstance(self._fake.answers.get("rotate_key"), Refused):  # with nothing changed
            await begins()
        return await self._fake.call("rotate_key", cluster, report, what, ref)


class FakeFabricTests(_Part):
    """Stands in for services.cluster_backend.ClusterFabricTests."""

    async def test_fabric(self, cluster: Cluster, nodes: Any, report: Any, waits: Any) -> Any:
        return await self._fake.call("test_fabric", cluster, nodes, report, waits)


class FakeWhatIf(_Part):
    """Stands in for services.cluster_backend.ClusterWhatIf."""

    async def replay(
        self, cluster: Cluster, changed: Cluster | None, since: str, until: str, operation: str, report: Any
    ) -> Any:
        return await self._fake.call("replay", cluster, changed, since, until, operation, report)


class FakeRollouts(_Part):
    """Stands in for services.cluster_backend.ClusterRollouts."""

    async def plan_rollout(self, cluster: Cluster, *, back: bool, head: bool, by: bool) -> Any:
        return await self._fake.call("plan_rollout", cluster, back, head, by)

    async def roll_nodes(self, cluster: Cluster, report: Any, waits: Any, *, back: bool, until: float | None) -> Any:
        return await self._fake.call("roll_nodes", cluster, report, waits, back, until)

    async def roll_heads(self, cluster: Cluster, report: Any, *, back: bool) -> Any:
        return await self._fake.call("roll_heads", cluster, report, back)

    async def ensure_image(self, cluster: Cluster, report: Any) -> Any:
        return await self._fake.call("ensure_image", cluster, report)

    async def nodes_await_rollout(self, cluster: Cluster) -> Any:
        return await self._fake.call("nodes_await_rollout", cluster)

    async def halt_rollout(self, cluster: Cluster, report: Any) -> Any:
        return await self._fake.call("halt_rollout", cluster, report)


class FakeStorage(_Part):
    """Stands in for services.cluster_backend.ClusterStorage."""

    async def measure_volumes(self, cluster: Cluster, node: str, mib: int) -> Any:
        return await self._fake.call("measure_volumes", cluster, node, mib)

    async def dataset_file_store(self, cluster: Cluster) -> Any:
        return await self._fake.call("dataset_file_store", cluster)

    async def environment_file_store(self, cluster: Cluster) -> Any:
        return await self._fake.call("environment_file_store", cluster)

    async def quotas(self, cluster: Cluster) -> Any:
        return await self._fake.call("quotas", cluster)

    async def volume_space(self, cluster: Cluster) -> Any:
        return await self._fake.call("volume_space", cluster)


class FakeSlurmState(_Part):
    """Stands in for services.cluster_backend.ClusterSlurmState."""

    async def read(self, cluster: Cluster) -> Any:
        return await self._fake.call("read", cluster)

    async def shares(self, cluster: Cluster) -> Any:
        return await self._fake.call("shares", cluster)

    async def job(self, cluster: Cluster, job_id: int) -> Any:
        return await self._fake.call("job", cluster, job_id)

    async def jobs_by_id(self, cluster: Cluster, numbers: tuple[int, ...]) -> Any:
        return await self._fake.call("jobs_by_id", cluster, numbers)

    async def history(self, cluster: Cluster) -> Any:
        return await self._fake.call("history", cluster)

    async def task(self, cluster: Cluster, job_id: int, task: str) -> Any:
        return await self._fake.call("task", cluster, job_id, task)

    async def array_states(self, cluster: Cluster, job_id: int) -> Any:
        return await self._fake.call("array_states", cluster, job_id)

    async def job_runs(self, cluster: Cluster, job_id: int) -> Any:
        return await self._fake.call("job_runs", cluster, job_id)

    async def head_local_time(self, cluster: Cluster, unix_s: int) -> Any:
        return await self._fake.call("head_local_time", cluster, unix_s)


class FakeJobs(_Part):
    """Stands in for services.cluster_backend.ClusterJobs."""

    async def submit(self, cluster: Cluster, request: Any, user: str, stage: Any = None, *, tag: str = "") -> Any:
        self._fake.tags += [tag] if tag else []
        return await self._fake.call("submit", cluster, request, user, *([stage] if stage else []))

    async def store_bundle(self, cluster: Cluster, user: str, root: str, digest: str, archive: bytes) -> Any:
        return await self._fake.call("store_bundle", cluster, user, root, digest, archive)

    async def cancel(self, cluster: Cluster, job: str, user: str, *, as_operator: bool) -> Any:
        return await self._fake.call("cancel", cluster, job, user, as_operator)

    async def control(self, cluster: Cluster, job: str, verb: str, user: str, *, as_operator: bool) -> Any:
        return await self._fake.call("control", cluster, job, verb, user, as_operator)

    async def progress(self, cluster: Cluster, jobs: tuple[JobState, ...]) -> Any:
        return await self._fake.call("progress", cluster, jobs)

    async def progress_from_files(self, cluster: Cluster, job: JobState) -> Any:
        return await self._fake.call("progress_from_files", cluster, job)

    async def log_part(self, cluster: Cluster, job: JobState, *, before: int | None, lines: int, err: bool) -> Any:
        return await self._fake.call("log_part", cluster, job, before, lines, err)

    async def metric_parts(self, cluster: Cluster, asked: Any) -> Any:
        return await self._fake.call("metric_parts", cluster, asked)

    async def step_result_files(self, cluster: Cluster, user: str, paths: Any) -> Any:
        return await self._fake.call("step_result_files", cluster, user, paths)

    async def rank_stacks(self, cluster: Cluster, job: JobState) -> Any:
        return await self._fake.call("rank_stacks", cluster, job)

    async def search_log(self, cluster: Cluster, job: JobState, text: str, *, err: bool) -> Any:
        return await self._fake.call("search_log", cluster, job, text, err)

    async def follow_log(
        self, cluster: Cluster, job: JobState, *, follow: bool, err: bool, start: int = 0
    ) -> AsyncIterator[bytes]:
        for piece in await self._fake.call("follow_log", cluster, job, follow, err, *([start] if start else [])):
            yield piece

    async def follow_array_logs(
        self, cluster: Cluster, job_id: int, *, follow: bool, err: bool
    ) -> AsyncIterator[bytes]:
        for piece in await self._fake.call("follow_array_logs", cluster, job_id, follow, err):
            yield piece


class FakeJobSecrets(_Part):
    """Stands in for services.cluster_backend.ClusterJobSecrets."""

    async def install_job_secrets(self, cluster: Cluster, content: bytes) -> Any:
        return await self._fake.call("install_job_secrets", cluster, content)


class FakeServiceProxy(_Part):
    """Stands in for services.cluster_backend_proxy.ClusterServiceProxy."""

    async def steer_proxy(self, cluster: Cluster, settings: ProxySettings) -> Any:
        return await self._fake.call("steer_proxy", cluster, settings)

    async def read_service_metrics(self, cluster: Cluster, after: str, replicas: Any) -> Any:
        return await self._fake.call("read_service_metrics", cluster, after, tuple(replicas))


class FakeUserChanges(_Part):
    """Stands in for services.cluster_backend.ClusterUserChanges."""

    async def lock_user(self, cluster: Cluster, user: str) -> Any:
        return await self._fake.call("lock_user", cluster, user)

    async def update_users(self, cluster: Cluster, users: Any) -> Any:
        answer = await self._fake.call("update_users", cluster, tuple(sorted(users)))
        return dict.fromkeys(users, answer) if isinstance(answer, UserUpdateResult) else answer


class FakeCommands(_Part):
    """Stands in for services.cluster_backend.ClusterCommands."""

    async def run_command(self, cluster: Cluster, request: Any, user: str) -> Any:
        return await self._fake.call("run_command", cluster, request, user)

    async def run_interactive(
        self, cluster: Cluster, argv: Any, user: str, feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        self._fake.calls.append(("run_interactive", (cluster, argv, user, feed)))
        async for piece in self._fake.answers["run_interactive"](cluster, argv, user, feed):
            yield piece

    async def run_on_terminal(
        self, cluster: Cluster, argv: Any, user: str, size: tuple[int, int], feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        self._fake.calls.append(("run_on_terminal", (cluster, argv, user, size, feed)))
        async for piece in self._fake.answers["run_on_terminal"](cluster, argv, user, size, feed):
            yield piece

    async def open_tunnel(self, cluster: Cluster, node: str, user: str, path: str) -> Any:
        return await self._fake.call("open_tunnel", cluster, node, user, path)


class FakeNodeActions(_Part):
    """Stands in for services.cluster_backend.ClusterNodeActions."""

    async def drain_node(self, cluster: Cluster, node: str, reason: str, person: str) -> Any:
        return await self._fake.call("drain_node", cluster, node, reason, person)

    async def return_node(self, cluster: Cluster, node: str, person: str) -> Any:
        return await self._fake.call("return_node", cluster, node, person)

    async def return_incident_node(self, cluster: Cluster, number: int, person: str, *, false_alarm: bool) -> Any:
        return await self._fake.call("return_incident_node", cluster, number, person, false_alarm)

    async def reboot_node(self, cluster: Cluster, node: str, person: str, *, busy: bool) -> Any:
        return await self._fake.call("reboot_node", cluster, node, person, busy)

    async def resume_reboot(self, cluster: Cluster, node: str) -> Any:
        return await self._fake.call("resume_reboot", cluster, node)

    async def test_node(self, cluster: Cluster, node: str, *, hard: bool) -> Any:
        return await self._fake.call("test_node", cluster, node, hard)

    async def inject_fault(self, cluster: Cluster, fault: Any) -> Any:
        return await self._fake.call("inject_fault", cluster, fault)


class FakeRentals(_Part):
    """Stands in for services.cluster_backend_rentals.ClusterRentals."""

    async def rented_things(self) -> Any:
        return await self._fake.call("rented_things")

    async def offers(self, cluster: Any) -> Any:
        return await self._fake.call("offers", cluster)

    async def rented_prices(self, cluster: str) -> Any:
        return await self._fake.call("rented_prices", cluster)

    async def unclaimed_things(self, cluster: Cluster) -> Any:
        return await self._fake.call("unclaimed_things", cluster)

    async def end_things(self, cluster: Cluster, things: Any) -> Any:
        return await self._fake.call("end_things", cluster, things)

    async def rentals(self, cluster: Cluster) -> Any:
        return await self._fake.call("rentals", cluster)

    async def renew_leases(self, cluster: Cluster) -> Any:
        return await self._fake.call("renew_leases", cluster)


class FakeUsageSources(_Part):
    """Stands in for services.cluster_backend.ClusterUsage."""

    async def usage_runs(self, cluster: Cluster, since: int, until: int) -> Any:
        return await self._fake.call("usage_runs", cluster, since, until)

    async def runs_of_jobs(self, cluster: Cluster, jobs: Any) -> Any:
        return await self._fake.call("runs_of_jobs", cluster, jobs)

    async def node_events(self, cluster: Cluster, since: int) -> Any:
        return await self._fake.call("node_events", cluster, since)

    async def restart_losses(self, cluster: Cluster) -> Any:
        return await self._fake.call("restart_losses", cluster)

    async def checkpoint_stats(self, cluster: Cluster) -> Any:
        return await self._fake.call("checkpoint_stats", cluster)

    async def hold_team_jobs(self, cluster: Cluster, team: str, *, on: bool) -> Any:
        return await self._fake.call("hold_team_jobs", cluster, team, on)


class FakeMonitoring(_Part):
    """Stands in for services.cluster_backend.ClusterMonitoring."""

    async def query_metrics(self, cluster: Cluster, queries: Any, start: float, end: float, step_s: int) -> Any:
        return await self._fake.call("query_metrics", cluster, queries, start, end, step_s)

    async def send_alerts(self, cluster: Cluster, news: Any) -> Any:
        return await self._fake.call("send_alerts", cluster, news)


class FakeBackend:
    """Stands in for the cluster backend: `answers` maps the name of a call to a value or function; other calls fail
    the test. Names of calls are those of the methods of the parts, which are unique."""

    def __init__(self, **answers: Any) -> None:
        # A cluster's accounting is read before each down, whatever a test is about.
        self.answers = _Answers(
            usage_runs=(), node_events=(), restart_losses={}, checkpoint_stats={},
            nodes_await_rollout=False, progress_from_files=None, metric_parts={},
            log_part=LogPartOut(text="", start=0, end=0, size=0),
        )  # fmt: skip
        self.answers.update(answers)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.tags: list[str] = []  # idempotency tags of submissions
        self.deadline: Deadline | None = None  # deadline of the last apply
        self.restarts = True  # of the last apply
        self.waiting: Any = None  # the `waiting` argument of the last apply
        self.clusters: dict[str, dict[str, Any]] = {}  # further fields of a resolved cluster, by name
        self.whole: dict[str, Cluster] = {}  # complete clusters by name, where the builders' cluster does not suffice
        self.lifecycle = FakeLifecycle(self)
        self.backups = FakeBackups(self)
        self.keys = FakeKeyRotation(self)
        self.rollouts = FakeRollouts(self)
        self.rentals = FakeRentals(self)
        self.storage = FakeStorage(self)
        self.fabric = FakeFabricTests(self)
        self.whatif = FakeWhatIf(self)
        self.slurm = FakeSlurmState(self)
        self.jobs = FakeJobs(self)
        self.job_secrets = FakeJobSecrets(self)
        self.proxy = FakeServiceProxy(self)
        self.user_changes = FakeUserChanges(self)
        self.commands = FakeCommands(self)
        self.nodes = FakeNodeActions(self)
        self.usage = FakeUsageSources(self)
        self.monitoring = FakeMonitoring(self)
        self.health = None

    def named(self, call: str) -> list[tuple[Any, ...]]:
        """Returns the arguments of each call of a name, in order."""
        assert call in CALLS | {"forget"}, f"no part has a call {call}"
        return [args for name, args in self.calls if name == call]

    async def call(self, name: str, *args: Any) -> Any:
        self.calls.append((name, args))
        assert name in self.answers, f"unregistered call: {name}{args}"
        answer = self.answers[name]
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            answer = answer(*args)
            if isinstance(answer, Awaitable):
                answer = await answer
        return answer

    async def forget(self, cluster: str) -> None:
        self.calls.append(("forget", (cluster,)))

    async def stand_by(self) -> None:
        self.calls.append(("stand_by", ()))

    async def close(self) -> None: ...


PARTS = (
    FakeLifecycle,
    FakeBackups,
    FakeKeyRotation,
    FakeRollouts,
    FakeRentals,
    FakeFabricTests,
    FakeWhatIf,
    FakeStorage,
    FakeSlurmState,
    FakeJobs,
    FakeJobSecrets,
    FakeServiceProxy,
    FakeUserChanges,
    FakeCommands,
    FakeNodeActions,
    FakeUsageSources,
    FakeMonitoring,
)
CALLS = frozenset(name for part in PARTS for name in vars(part) if not name.startswith("_"))
