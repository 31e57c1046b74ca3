"""Reads requests of Amazon SageMaker's CreateTrainingJob (JSON)."""

from __future__ import annotations

import re
import shlex

from headway.convert.job_description import Group, Job, PerNode
from headway.convert.quantities import slurm_time
from headway.convert.readers.pods import set_nodes
from headway.convert.reading_state import LOGIN_REMEDY, SECRET_REMEDY, Reading
from headway.convert.yaml_fields import Field
from headway.domain.access.credential_redaction import is_secret

# GPUs of an instance type; other types have none.
_GPUS = {
    "p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8, "p3dn.24xlarge": 8, "p4d.24xlarge": 8, "p4de.24xlarge": 8,
    "p5.4xlarge": 1, "p5.48xlarge": 8, "p5e.48xlarge": 8, "p5en.48xlarge": 8, "p6-b200.48xlarge": 8, "p6-b300.48xlarge": 8,
    "g4dn.12xlarge": 4, "g4dn.16xlarge": 1, "g5.12xlarge": 4, "g5.16xlarge": 1, "g5.24xlarge": 4, "g5.48xlarge": 8,
    "g6.12xlarge": 4, "g6.16xlarge": 1, "g6.24xlarge": 4, "g6.48xlarge": 8, "g6e.12xlarge": 4, "g6e.16xlarge": 1,
    "g6e.24xlarge": 4, "g6e.48xlarge": 8,
}  # fmt: skip
_ONE_GPU = re.compile(r"(?:g4dn|g5|g6|g6e)\.(?:xlarge|2xlarge|4xlarge|8xlarge)")
_SCRIPT = ("sagemaker_program", "sagemaker_submit_directory", "sagemaker_region", "sagemaker_container_log_level",
           "sagemaker_job_name")  # fmt: skip
_HOSTS = """$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed 's/.*/"&"/' | paste -sd, | sed 's/.*/[&]/')"""
_REASONS = {
    "RoleArn": ("a job runs as the user who submits it", "credentials for S3 are secrets: headway secret"),
    "VpcConfig": ("the cluster has its network", ""),
    "EnableNetworkIsolation": ("jobs reach the network", "network_policy of the cluster file limits it"),
    "EnableInterContainerTrafficEncryption": ("nodes talk on the cluster's network", ""),
    "Tags": ("Slurm has no labels", "see --comment and --wckey"),
    "VolumeSizeInGB": ("nodes have their disks", "see --tmp"),
    "VolumeKmsKeyId": ("nodes have their disks", ""),
    "KmsKeyId": ("nodes have their disks", ""),
    "EnableManagedSpotTraining": ("nodes belong to the cluster", "see --qos and --requeue"),
    "MaxWaitTimeInSeconds": ("a job waits until it starts", "see --deadline"),
    "RetryStrategy": ("Slurm repeats a job only after its node failed", "see --requeue"),
    "ProfilerConfig": ("nothing is profiled by itself", "see the job's charts: headway job"),
    "ProfilerRuleConfigurations": ("nothing is profiled by itself", "see the job's charts: headway job"),
    "DebugHookConfig": ("tensors are not collected", ""),
    "DebugRuleConfigurations": ("tensors are not collected", ""),
    "TensorBoardOutputConfig": ("nothing copies the events", "write them to a shared folder"),
    "ExperimentConfig": ("experiments are not recorded", "call your tracking server in the program"),
    "MetricDefinitions": ("logs are not searched for metrics", "report progress with headway_train"),
    "OutputDataConfig": ("nothing is copied to S3", "the model is in $SM_MODEL_DIR; copy it in the script"),
    "CheckpointConfig": ("nothing is copied to S3", "write checkpoints to a shared folder"),
    "InputDataConfig": ("nothing is copied from S3", "use a dataset: headway dataset, and set SM_CHANNEL_NAME to its folder"),
    "KeepAlivePeriodInSeconds": ("nodes belong to the cluster", ""),
    "InstanceGroups": ("nodes of a job are equal", "see --nodes and --gpus-per-node"),
    "InstancePlacementConfig": ("Slurm places nodes by its topology", "see --switches"),
    "TrainingPlanArn": ("nodes belong to the cluster", "see --reservation"),
    "MaxPendingTimeInSeconds": ("a job waits until it starts", ""),
    "InfraCheckConfig": ("nodes are checked before and after jobs", ""),
    "TrainingImageConfig": ("credentials of registries are the user's", LOGIN_REMEDY),
    "RemoteDebugConfig": ("a person reaches a running job by SSH", "headway shell"),
    "SessionChainingConfig": ("a job has no session of AWS", ""),
    "TrainingInputMode": ("nothing is copied from S3", "use a dataset: headway dataset"),
    "EnableSageMakerMetricsTimeSeries": ("logs are not searched for metrics", ""),
}  # fmt: skip


def read_sagemaker(reading: Reading, root: Field) -> Job:
    """Returns the job of a training: its container on each node, with the variables of SageMaker's script mode."""
    job = reading.job
    name = root["TrainingJobName"]
    if name:
        reading.set(name.place, "job-name", name.text())
    algorithm, resources = root["AlgorithmSpecification"], root["ResourceConfig"]
    if algorithm["AlgorithmName"]:
        raise algorithm["AlgorithmName"].fault(
            "is an algorithm of SageMaker, without a public image", "name a TrainingImage"
        )
    job.image = algorithm["TrainingImage"].text()
    nodes = resources["InstanceCount"].number(1) or 1
    set_nodes(reading, resources["InstanceCount"].place, nodes)
    gpus = _gpus(reading, resources["InstanceType"])
    seconds = root["StoppingCondition"]["MaxRuntimeInSeconds"]
    if seconds and seconds.number(0):
        reading.set(seconds.place, "time", slurm_time(seconds.number(0)))
    for variable, value in root["Environment"].members():
        reading.set_variable(value.place, variable, value.text())
    text, words = _command(reading, algorithm, root["HyperParameters"])
    folder = "$SLURM_SUBMIT_DIR/$SLURM_JOB_ID"
    head = (("SM_MODEL_DIR", f"{folder}/model"), ("SM_OUTPUT_DATA_DIR", f"{folder}/output"), ("SM_HOSTS", _HOSTS))
    ranks = (("SM_CURRENT_HOST", "$SLURMD_NODENAME"), ("SM_NUM_GPUS", str(gpus)))
    job.preamble.append('mkdir -p "$SLURM_SUBMIT_DIR/$SLURM_JOB_ID/model" "$SLURM_SUBMIT_DIR/$SLURM_JOB_ID/output"')
    job.program = PerNode((Group("training", nodes, text, words),), head, ranks)
    root.lose_the_rest(_REASONS, {})
    return job


def _gpus(reading: Reading, field: Field) -> int:
    kind = field.text().removeprefix("ml.")
    gpus = 1 if _ONE_GPU.fullmatch(kind) else _GPUS.get(kind, 0)
    if gpus:
        reading.set(field.place, "gpus-per-node", str(gpus))
        reading.change(
            field.place, "nodes of the cluster are taken, with the instance's number of GPUs", "see --constraint"
        )
    elif field:
        field.lose(
            "nodes belong to the cluster; the type has no GPUs, or is not known", "see --cpus-per-task and --mem"
        )
    return gpus


def _command(reading: Reading, algorithm: Field, parameters: Field) -> tuple[str, tuple[str, ...]]:
    """Returns the program: the container's entrypoint, or `python PROGRAM` of the script mode, with hyperparameters as
    options."""
    entrypoint = algorithm["ContainerEntrypoint"].words()
    arguments = algorithm["ContainerArguments"].words()
    options: list[str] = []
    program = ""
    for name, value in parameters.members():
        text = value.text()
        text = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
        if name == "sagemaker_program":
            program = text
        elif name in _SCRIPT or name.startswith("sagemaker_"):
            reading.lose(
                value.place,
                "it is a setting of SageMaker's container",
                "put the program's files into the folder of submission",
            )
        elif is_secret(name):
            reading.lose(value.place, "the name is that of a secret, so the value is not copied", SECRET_REMEDY)
        else:
            options += [f"--{name}", text]
    if entrypoint:
        words = [*entrypoint, *arguments]
        if options:
            reading.change(
                parameters.place, "hyperparameters become options of the program; SageMaker writes a file", ""
            )
        words += options
    elif program:
        words = ["python", program, *options]
    else:
        words = ["train", *arguments, *options]
        reading.change(
            algorithm["TrainingImage"].place,
            "the image's program train is started",
            "name another program in the script",
        )
    quoted = tuple(shlex.quote(word) for word in words)
    return " ".join(quoted), quoted
