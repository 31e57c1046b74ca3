"""export kubernetes reads a job or a service from the server, and writes its objects with the size that it used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.errors import NotFound
from headway.schemas.billing.usage import RunLine, RunsOut
from headway.schemas.jobs import JobOut, ScriptOut
from headway.schemas.serving.services import ReplicaOut, ServiceOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture
IMAGE = ("--image", "example.org/a:1")


def run_line(**values: Any) -> RunLine:
    base = dict.fromkeys(RunLine.model_fields, 0) | dict.fromkeys(
        ("team", "user", "partition", "group", "state", "nodes", "gpu_type"), "x"
    )
    return RunLine.model_validate(
        base | {"end": None, "time_limit_s": None, "energy_estimated": False, "usd": None} | values
    )


@pytest.fixture
def job(cli: Cli) -> Cli:
    cli.api.on("clusters.only_name", "lab")
    cli.api.on(
        "jobs.get",
        JobOut(id=12, name="a", user="a", account="t", partition="p", state="COMPLETED", submit_time=10_000_000),
    )
    script = "#!/bin/bash\n#SBATCH --mem=64G\n./a\n"
    cli.api.on("jobs.script", ScriptOut(name="a.sh", text=script, kind="sbatch"))
    cli.api.on("jobs.lineage", NotFound("job 12 was not submitted through Headway"))
    used = run_line(node_count=1, elapsed_s=100, used_cpu_s=400, used_memory_mib=20_000)
    cli.api.on("billing.usage_runs", RunsOut(cluster="lab", start=0, end=1, runs=[used]))
    return cli


def requests(text: str) -> dict[str, str]:
    """Returns what the only pod of a JobSet requests."""
    (jobs,) = yaml.safe_load(text)["spec"]["replicatedJobs"]
    (container,) = jobs["template"]["spec"]["template"]["spec"]["containers"]
    found: dict[str, str] = container["resources"]["requests"]
    return found


def test_job_requests_what_it_has_used(job: Cli) -> None:
    done = job("export", "kubernetes", "lab", "12", *IMAGE)
    assert requests(done.out) == {"cpu": "5", "memory": "25Gi"}
    note = done.err.splitlines()[-1]
    assert note.startswith("each pod requests 5 CPUs and 25 GiB: the mean use of a node and 25% more, at most what")
    (asked,) = [call[2] for call in job.api.calls if call[0] == "billing.usage_runs"]
    assert asked == {"job": 12, "start": "1970-03-27T17:46:40Z"}, "a requeue renews the time of submission"
    assert requests(job("export", "kubernetes", "12", *IMAGE, "--as-requested").out) == {"memory": "64Gi"}


def test_note_has_the_size_that_is_written(job: Cli) -> None:
    script = "#!/bin/bash\n#SBATCH --cpus-per-task=2 --mem=500M\n./a\n"
    job.api.on("jobs.script", ScriptOut(name="a.sh", text=script, kind="sbatch"))
    done = job("export", "kubernetes", "12", *IMAGE)
    assert requests(done.out) == {"cpu": "2", "memory": "500Mi"}
    assert "each pod requests 2 CPUs and 0.5 GiB: " in done.err


def test_job_without_recorded_use_is_sized_as_requested(job: Cli, tmp_path: Path) -> None:
    job.api.on("billing.usage_runs", RunsOut(cluster="lab", start=0, end=1, runs=[]))
    done = job("export", "kubernetes", "12", *IMAGE, "-o", str(tmp_path / "out.yaml"))
    assert requests((tmp_path / "out.yaml").read_text()) == {"memory": "64Gi"}
    assert done.out == ""
    assert "no use is recorded yet" in done.err


def test_service_is_sized_by_the_replicas_of_its_version(job: Cli) -> None:
    replicas = [
        ReplicaOut(number=number, version=version, state="ended", since=0, job_id=number)
        for number, version in ((1, 1), (2, 2))
    ]
    service = ServiceOut(
        id="v-1", cluster="lab", team="t", name="chat", person="a", user="a", created_at=0, state="running", version=2,
        replicas=replicas, file={"name": "chat", "run": ["serve"]},
    )  # fmt: skip
    job.api.on("services.get", service)
    done = job("export", "kubernetes", "t/chat", *IMAGE)
    assert [document["kind"] for document in yaml.safe_load_all(done.out)] == ["Deployment", "Service"]
    assert [call[2]["job"] for call in job.api.calls if call[0] == "billing.usage_runs"] == [2]
    job.api.on("services.get", service.model_copy(update={"file": {}}))
    refused = job("export", "kubernetes", "t/chat", *IMAGE)
    assert "the file of service t/chat is readable for its owner" in refused.err
