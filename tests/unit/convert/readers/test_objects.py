"""Objects of Kubernetes, and files of SkyPilot, dstack and SageMaker."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from headway.convert.conversion import Converted, convert_file
from headway.convert.formats import Source
from headway.errors import InvalidSpec
from tests.support.job_files import JOB_FILES

POD: dict[str, Any] = {
    "containers": [{"name": "main", "image": "nvcr.io/nvidia/pytorch:25.05", "command": ["python", "a b.py"]}]
}


def convert(document: Any) -> Converted:
    return convert_file(yaml.safe_dump(document).encode())


def job(pod: dict[str, Any], **spec: Any) -> Converted:
    return convert(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": {"spec": pod}} | spec}
    )


def container(**fields: Any) -> Converted:
    return job({"containers": [POD["containers"][0] | fields]})


def lost(converted: Converted) -> dict[str, str]:
    return {loss.where.rpartition("spec.")[2]: loss.remedy for loss in converted.losses if loss.outcome == "lost"}


def test_command_runs_in_the_image_by_srun() -> None:
    text = job(POD).text
    assert text.endswith("srun '--container-image=nvcr.io#nvidia/pytorch:25.05' python 'a b.py'\n")


def test_references_of_kubernetes_become_variables_of_the_shell() -> None:
    converted = container(
        command=["python", "--out=$(OUT)/x y", "$$(date)", "$(UNKNOWN)"], env=[{"name": "OUT", "value": "/d"}]
    )
    assert """python --out="${OUT}"'/x y' '$(date)' '$(UNKNOWN)'""" in converted.text
    script = container(command=["sh", "-c", "echo $(OUT) $(date)"], env=[{"name": "OUT", "value": "/d"}]).text
    assert "echo ${OUT} $(date)" in script
    assert 'sh -c "$commands"' in script


def test_values_of_variables_name_earlier_ones() -> None:
    values = {"ROOT": "/data", "RUN": "$(ROOT)/run$$1", "PRICE": "5$$ or $$(ROOT)"}
    values |= {"ODD": "$(NONE)", "LATE": "$(END)", "END": "x"}
    converted = container(env=[{"name": name, "value": value} for name, value in values.items()])
    for line in ("RUN='/data/run$1'", "PRICE='5$ or $(ROOT)'", "ODD='$(NONE)'", "LATE='$(END)'"):
        assert f"\nexport {line}\n" in converted.text
    assert [loss.why for loss in converted.losses if loss.outcome == "changed"] == [
        "the value of END is not copied, or is set below it"
    ]


def test_secret_does_not_reach_the_value_of_another_variable() -> None:
    env = [{"name": "API_TOKEN", "value": "sesame"}, {"name": "URL", "value": "https://me:$(API_TOKEN)@host"}]
    converted = container(env=env)
    assert "sesame" not in converted.text
    assert "the value of API_TOKEN is not copied, or is set below it" in [loss.why for loss in converted.losses]


def test_values_cannot_leave_their_line() -> None:
    with pytest.raises(InvalidSpec):
        container(command=[])
    converted = container(env=[{"name": "A", "value": "x\n#SBATCH --nodes=99; rm '"}], workingDir="/a b; $(x)")
    assert "export A='x\n#SBATCH --nodes=99; rm '\"'\"''" in converted.text
    assert "'--container-workdir=/a b; $(x)'" in converted.text
    named = convert({"kind": "Job", "metadata": {"name": "a\n#SBATCH --uid=0"}, "spec": {"template": {"spec": POD}}})
    assert "uid" not in named.text
    assert "metadata.name" in {loss.where for loss in named.losses}


def test_secrets_are_named_with_their_remedy() -> None:
    converted = container(env=[
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "API_TOKEN", "value": "abcdefgh"},
    ])  # fmt: skip
    assert "abcdefgh" not in converted.text + str(converted.losses)
    assert all("headway secret set" in remedy for remedy in lost(converted).values())
    assert len(lost(converted)) == 2


def test_volumes() -> None:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("host", "empty", "claim", "config")]
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    volumes = [
        {"name": "host", "hostPath": {"path": "/data", "type": "Directory"}}, {"name": "empty", "emptyDir": {}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "config", "configMap": {"name": "c"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]  # fmt: skip
    converted = job({"containers": [POD["containers"][0] | {"volumeMounts": mounts}], "volumes": volumes})
    assert "--container-mounts=/data:/host,tmpfs:/empty" in converted.text
    assert lost(converted).keys() == {
        "volumes[2]",
        "volumes[3]",
        "containers[0].volumeMounts[2]",
        "containers[0].volumeMounts[3]",
    }
    assert "/claim" in lost(converted)["volumes[2]"]


def test_completions_are_an_array_unless_pods_know_each_other() -> None:
    assert "--array=0-7%2\n" in job(POD, completions=8, parallelism=2).text
    together = job(POD | {"subdomain": "ring"}, completions=4, parallelism=4, completionMode="Indexed").text
    assert "--nodes=4\n" in together
    assert "--array" not in together


def test_pods_that_differ_become_equal_nodes() -> None:
    document = yaml.safe_load(JOB_FILES[Source.PYTORCHJOB])
    worker = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker |= {"command": ["sleep", "1"], "resources": {"limits": {"nvidia.com/gpu": 4}}, "image": "other:1"}
    converted = convert(document)
    assert "--gpus-per-node=4\n" in converted.text
    assert 'if [ "$SLURM_PROCID" -le 0 ]; then  # Master' in converted.text
    assert "else  # Worker\nsleep 1\nfi" in converted.text
    assert {loss.outcome for loss in converted.losses if "nvidia.com/gpu" in loss.where} == {"changed"}
    assert any(loss.text == "other:1" and loss.outcome == "lost" for loss in converted.losses)


def test_mpirun_of_the_launcher_becomes_srun() -> None:
    converted = convert_file(JOB_FILES[Source.MPIJOB].encode())
    assert "--ntasks-per-node=2\n" in converted.text
    assert "test -n '$(HOME)'\n" in converted.text
    assert "mpirun" not in converted.text
    assert any(loss.text == "-bind-to none" for loss in converted.losses)


@pytest.mark.parametrize(
    ("accelerators", "expected"),
    [
        ("H100:8", "8"),
        ("A100", "1"),
        ({"L4": 2}, "2"),
        ({"L4:4": None}, "4"),
        (["H100:8", "A100:4"], "8"),
        ("H100:0.5", None),
    ],
)
def test_accelerators_of_skypilot(accelerators: Any, expected: str | None) -> None:
    converted = convert({"resources": {"accelerators": accelerators}, "run": "true"})
    assert (f"--gpus-per-node={expected}\n" in converted.text) is (expected is not None)
    assert "resources.accelerators" in {loss.where for loss in converted.losses}


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (2, "2"),
        ("H100:8", "8"),
        ("H100:80GB:4", "4"),
        ("24GB..:2", "2"),
        ("A100", "1"),
        ({"name": "H100", "count": "2..4"}, "2"),
    ],
)
def test_gpus_of_dstack(gpu: Any, expected: str) -> None:
    converted = convert({"type": "task", "commands": ["true"], "resources": {"gpu": gpu}})
    assert f"--gpus-per-node={expected}\n" in converted.text


def test_hyperparameters_of_sagemaker_are_options_and_secrets_are_not() -> None:
    document = yaml.safe_load(JOB_FILES[Source.SAGEMAKER])
    del document["AlgorithmSpecification"]["ContainerEntrypoint"]
    document["HyperParameters"] = {"sagemaker_program": '"train.py"', "epochs": "3", "hub_token": "hf_abcdefgh"}
    converted = convert(document)
    assert "\npython train.py --epochs 3\n" in converted.text
    assert "hf_abcdefgh" not in converted.text
    assert "--gpus-per-node=4\n" in converted.text


def test_other_kinds_of_dstack_have_a_next_step() -> None:
    with pytest.raises(InvalidSpec, match="headway notebook"):
        convert({"type": "dev-environment", "ide": "vscode"})


def test_second_folder_at_one_path_is_lost() -> None:
    mounts = [{"name": name, "mountPath": "/data"} for name in ("one", "two")]
    volumes = [{"name": name, "hostPath": {"path": f"/{name}"}} for name in ("one", "two")]
    converted = job({"containers": [POD["containers"][0] | {"volumeMounts": mounts}], "volumes": volumes})
    assert "--container-mounts=/one:/data " in converted.text
    assert lost(converted).keys() == {"containers[0].volumeMounts[1]"}
