"""Jobs and services as objects of Kubernetes, sized from what they have used."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from headway.convert.job_description import Used
from headway.convert.kubernetes_export import (
    OF_JOBS,
    OF_SERVICES,
    Exported,
    Kind,
    RunUse,
    export_job,
    export_service,
    used_per_node,
)
from headway.errors import InvalidSpec
from headway.jobs.submission.batch_script import StepProgram, run_script
from headway.jobs.submission.job_folders import user_folders
from headway.schemas.submission.run_request import ContainerIn, RunIn
from tests.support.clusters.builders import cluster
from tests.support.kubernetes_schemas import schema_faults

IMAGE = "example.org/train:1"
LAB = cluster(4)
PLACE = user_folders(LAB, "alice")
SERVICE: dict[str, Any] = {
    "name": "chat", "run": ["vllm", "serve", "/datasets/llama", "--port", "{port}"], "gpus": 2, "time": "1-0",
    "replicas": {"min": 2, "max": 6, "requests": 16}, "drain_s": 120, "partition": "train", "sbatch": ["--mem=64G"],
    "container": {"image": "docker://example.org/vllm:1", "mounts": ["/datasets:/datasets:ro"]},
    "env": {"HF_HOME": "/datasets/hf"}, "secrets": ["hf"],
}  # fmt: skip
RAY_SERVICE = SERVICE | {"run": ["serve", "run", "chat:app", "--port", "{port}"]}


def run_of(
    *argv: str,
    kind: Kind | None = None,
    used: Used | None = None,
    queue: str = "",
    step: StepProgram | None = None,
    **fields: Any,
) -> Exported:
    """Returns the object of a job that `headway run` has submitted."""
    run = RunIn(argv=list(argv), **fields)
    script = run_script(
        run, LAB, PLACE, PLACE.job_folder("train", "1"), PLACE.helper_path("ab" * 32), warner="/w", ray="/r", step=step
    )
    found = export_job(script.text(), script.args, run.sbatch, run.env, kind=kind, image=IMAGE, queue=queue, used=used)
    assert schema_faults(found.text) == []
    return found


def containers(text: str) -> list[dict[str, Any]]:
    """Returns all containers of the objects."""
    found, stack = [], list(yaml.safe_load_all(text))
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            found += value.get("containers", [])
            stack += [member for name, member in value.items() if name != "containers"]
        elif isinstance(value, list):
            stack += value
    return found


@pytest.mark.parametrize("kind", OF_JOBS)
def test_pods_start_the_program_without_the_launcher(kind: Kind) -> None:
    words = ("/scratch/alice/venv/bin/torchrun", "train.py", "--lr", "0.1 x")
    found = run_of(
        *words, kind=kind, nodes=2, gpus=8, time="1:00:00", partition="train", queue="vision", env={"LR": "1"}
    )
    assert all(one["env"] == [{"name": "LR", "value": "1"}] for one in containers(found.text))
    (document,) = yaml.safe_load_all(found.text)
    assert document["metadata"] == {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "vision"}}
    assert "torchrun --nnodes=" in found.text
    assert "--nproc-per-node=8 " in found.text, "one worker for each GPU"
    assert "train.py --lr" in found.text
    for word in ("helper", "HEADWAY_", "/scratch/alice", "srun"):
        assert word not in found.text
    assert all(one["resources"]["limits"] == {"nvidia.com/gpu": "8"} for one in containers(found.text))
    outcomes = {loss.text: loss.outcome for loss in found.losses}
    assert (outcomes["the job's folder"], outcomes["--partition=train"]) == ("changed", "changed")


@pytest.mark.parametrize(
    ("argv", "fields", "line"),
    [
        (("python3", "train.py", "a b"), {}, "python3 train.py 'a b'"),
        (("python3", "train.py"), {"warn": True}, "python3 train.py"),
        (("./a.out", "x"), {"launcher": "srun", "tasks": 2}, "./a.out x"),
        (("mpirun", "./solve"), {"nodes": 2}, "mpirun ./solve"),
        (("python3", "x.py"), {"container": ContainerIn(image="docker://a", mounts=["/datasets:/datasets"])}, "python3 x.py"),
    ],
)  # fmt: skip
def test_each_launcher_becomes_a_command(argv: tuple[str, ...], fields: dict[str, Any], line: str) -> None:
    (container,) = containers(run_of(*argv, **fields).text)
    assert container["command"][-1].splitlines()[-1] == line


@pytest.mark.parametrize(
    ("argv", "line", "name"),
    [
        (("t.py", "--api-key=sk-1", "--epochs", "5"), "t.py '--api-key=********' --epochs 5", "--api-key"),
        (("t.py", "--token", "sk-1", "--epochs", "5"), "t.py --token '********' --epochs 5", "--token"),
        (("bash", "-c", "X_TOKEN=sk-1", "a"), "bash -c 'X_TOKEN=********' a", "X_TOKEN"),
    ],
)
def test_secret_in_a_command_is_masked_and_the_other_words_stay(argv: tuple[str, ...], line: str, name: str) -> None:
    found = run_of(*argv)
    (container,) = containers(found.text)
    subprocess.run(["bash", "-n", "-c", container["command"][-1]], check=True)
    assert container["command"][-1] == line
    assert [loss.text for loss in found.losses if "a secret" in loss.why] == [name]


def test_values_with_dollars_stay_as_they_are() -> None:
    found = run_of("./a", env={"PRICE": "x$$y", "OTHER": "$(PRICE) $HOME"})
    (container,) = containers(found.text)
    assert [one["value"] for one in container["env"]] == ["x$$$$y", "$$(PRICE) $HOME"]


def test_parts_of_the_launcher_that_pods_lack_are_named() -> None:
    found = run_of("./a", environment="torch@3", stage_in=["books@3", "films@1"])
    lost = [loss.text for loss in found.losses if loss.outcome == "lost"]
    assert lost == ["--environment torch@3", "--stage-in books@3", "--stage-in films@1", "HEADWAY_CHECKPOINT_DIR"]
    found = run_of("./a", env={"HEADWAY_CHECKPOINT_DIR": "/c"}, step=StepProgram("/s", "/p", "train"))
    lost = [loss.text for loss in found.losses if loss.outcome == "lost"]
    assert lost == ["inputs and outputs of the pipeline's step"]


@pytest.mark.parametrize("fields", [{}, {"launcher": "srun"}, {"container": ContainerIn(image="docker://a")}])
def test_script_without_its_command_is_refused(fields: dict[str, Any]) -> None:
    run = RunIn(argv=["./a"], **fields)
    script = run_script(run, LAB, PLACE, "/job", PLACE.helper_path("ab" * 32))
    for arguments in ([], script.args[:-1]):
        with pytest.raises(InvalidSpec, match="has no command"):
            export_job(script.text(), arguments, [], {}, kind=None, image=IMAGE, queue="", used=None)


def test_job_of_ray_becomes_a_rayjob() -> None:
    found = run_of("python3", "tune.py", launcher="ray", nodes=2, gpus=8)
    assert found.kind is Kind.RAYJOB
    assert yaml.safe_load(found.text)["spec"]["entrypoint"] == "python3 tune.py"


def test_script_of_a_user_keeps_its_lines_arguments_and_flags() -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=1 --mem=16G\npython3 train.py $1\n"
    found = export_job(script, ["0.1 x"], ["--mem", "32G"], {}, kind=None, image=IMAGE, queue="", used=None)
    (container,) = containers(found.text)
    assert container["command"][-1] == "set -- '0.1 x'\npython3 train.py $1"
    assert container["resources"]["limits"] == {"memory": "32Gi"}
    assert schema_faults(found.text) == []


@pytest.mark.parametrize("value", ["sk-1", "********"])  # the server masks it
def test_secrets_in_a_script_of_a_user_are_named(value: str) -> None:
    script = f"#!/bin/bash\n#SBATCH --export=A_TOKEN={value}\nexport HF_TOKEN={value}\n./a --api-key {value}\n"
    found = export_job(script, ["--token", value], [], {}, kind=None, image=IMAGE, queue="", used=None)
    assert "sk-1" not in found.text
    assert [(loss.where, loss.text) for loss in found.losses] == [
        ("arguments", "--token"),
        ("line 2", "A_TOKEN"),
        ("line 3", "HF_TOKEN"),
        ("line 4", "--api-key"),
    ]


def test_pods_request_what_was_used_up_to_what_the_job_had() -> None:
    script = "#!/bin/bash\n#SBATCH --cpus-per-task=16 --mem=64G --gpus-per-node=2\n./a\n"
    for used, requests in (
        (Used(5, 10240), {"cpu": "5", "memory": "10Gi", "nvidia.com/gpu": "2"}),
        (Used(40, 99999), {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "2"}),
    ):
        found = export_job(script, [], [], {}, kind=None, image=IMAGE, queue="", used=used)
        (container,) = containers(found.text)
        assert container["resources"]["requests"] == requests
        assert container["resources"]["limits"] == {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "2"}
        assert found.used == Used(int(requests["cpu"]), int(requests["memory"].removesuffix("Gi")) * 1024)


def test_pods_of_a_job_without_limits_request_what_was_used() -> None:
    used = Used(5, 10240)
    service = {"name": "chat", "run": ["serve"]}
    for found in (
        run_of("./a", used=used),
        export_service(service, kind=None, image=IMAGE, queue="", used=used),
    ):
        (container,) = containers(found.text)
        assert container["resources"] == {"requests": {"cpu": "5", "memory": "10Gi"}}
        assert found.used == used


def test_use_of_a_node_is_that_of_the_run_with_the_most_and_a_quarter_more() -> None:
    runs = [RunUse(2, 100, 800, 20_000), RunUse(2, 50, 100, 30_000), RunUse(2, 0, 0, 0)]
    assert used_per_node(runs) == Used(5, 19 * 1024)
    assert used_per_node([RunUse(1, 100, 1, 1)]) == Used(1, 1024)
    assert used_per_node([RunUse(1, 100, 0, 0)]) is None


@pytest.mark.parametrize("kind", OF_SERVICES)
def test_service_keeps_to_the_schemas_and_names_what_is_lost(kind: Kind) -> None:
    document = RAY_SERVICE if kind is Kind.RAYSERVICE else SERVICE
    found = export_service(document, kind=kind, image="", queue="vision", used=Used(4, 30 * 1024))
    assert schema_faults(found.text) == []
    assert yaml.safe_load(found.text.split("---")[0])["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "vision"}
    server = next(one for one in containers(found.text) if one["name"] != "ray-head")
    assert server["image"] == "example.org/vllm:1"
    assert server["resources"]["requests"] == {"cpu": "4", "memory": "30Gi", "nvidia.com/gpu": "2"}
    assert server["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": "2"}
    assert server["volumeMounts"] == [{"name": "folder-0", "mountPath": "/datasets", "readOnly": True}]
    assert {loss.where for loss in found.losses} >= {"secrets", "run", "time", "partition"}


def test_deployment_starts_a_pod_before_it_ends_another() -> None:
    deployment, service = yaml.safe_load_all(export_service(SERVICE, kind=None, image="", queue="", used=None).text)
    pod = deployment["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    assert (deployment["spec"]["replicas"], server["command"][-1]) == (2, "8000")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert server["startupProbe"]["failureThreshold"] * server["startupProbe"]["periodSeconds"] == 600
    assert pod["terminationGracePeriodSeconds"] == 130
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": 8000}]


def test_command_of_a_service_has_no_secrets_and_keeps_its_dollars() -> None:
    document = SERVICE | {"run": "server --api-key sk-1 --name $$ '$(a)'", "env": {"A": "x$$y"}}
    found = export_service(document, kind=None, image="", queue="", used=None)
    (server,) = containers(found.text)
    assert server["command"] == ["server", "--api-key", "********", "--name", "$$$$", "$$(a)"]
    assert server["env"][0] == {"name": "A", "value": "x$$$$y"}
    assert [loss.text for loss in found.losses if "a secret" in loss.why] == ["--api-key"]


@pytest.mark.parametrize(
    ("document", "kind", "message"),
    [
        (SERVICE, Kind.RAYSERVICE, "is no application of Ray Serve"),
        (SERVICE | {"nodes": 2}, Kind.DEPLOYMENT, "a replica has several nodes"),
        (SERVICE | {"container": None}, Kind.DEPLOYMENT, "names no container image"),
        (SERVICE, Kind.JOBSET, "jobset is no object for a service"),
    ],
)
def test_service_that_can_not_be_written_is_refused(document: dict[str, Any], kind: Kind, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        export_service(document, kind=kind, image="", queue="", used=None)


def test_kind_of_a_service_is_refused_for_a_job() -> None:
    with pytest.raises(InvalidSpec, match="deployment is no object for a job"):
        run_of("python3", "x.py", kind=Kind.DEPLOYMENT)
