"""Schemas of Kubernetes' objects for tests: the fields that Headway writes, with the names, types and requirements of the
published definitions, and nothing else allowed.

Sources (Apache License 2.0): jobset.x-k8s.io_jobsets.yaml of kubernetes-sigs/jobset at 08dfbdfd, version v1alpha2;
ray.io_rayjobs.yaml and ray.io_rayservices.yaml of ray-project/kuberay at feeaf72f, v1; kubeflow.org_pytorchjobs.yaml of
kubeflow/training-operator 1.9.0, v1; serving.kserve.io_inferenceservices.yaml (full) of kserve/kserve at aaac4e29, v1beta1.
With HEADWAY_CRDS=FOLDER, a folder with these files, objects are also compared with the files, and the fields below as well.
Deployment and Service are those of Kubernetes' API, apps/v1 and v1."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
SWITCH: Schema = {"type": "boolean"}
FREE: Schema = {"type": "object"}
QUANTITIES: Schema = {"type": "object", "additionalProperties": {"type": ["integer", "string"]}}
FILES = {
    "JobSet": ("jobset.x-k8s.io_jobsets.yaml", "v1alpha2"), "RayJob": ("ray.io_rayjobs.yaml", "v1"),
    "RayService": ("ray.io_rayservices.yaml", "v1"), "PyTorchJob": ("kubeflow.org_pytorchjobs.yaml", "v1"),
    "InferenceService": ("serving.kserve.io_inferenceservices.yaml", "v1beta1"),
}  # fmt: skip
HAS_FILES = bool(os.environ.get("HEADWAY_CRDS"))


def fields(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


CONTAINER = fields(
    "name", name=TEXT, image=TEXT, command=list_of(TEXT), workingDir=TEXT,
    env=list_of(fields("name", name=TEXT, value=TEXT)), resources=fields(requests=QUANTITIES, limits=QUANTITIES),
    volumeMounts=list_of(fields("mountPath", "name", name=TEXT, mountPath=TEXT, readOnly=SWITCH)),
)  # fmt: skip
POD = fields(
    "containers", containers=list_of(CONTAINER), restartPolicy=TEXT,
    volumes=list_of(fields("name", name=TEXT, hostPath=fields("path", path=TEXT), emptyDir=fields(medium=TEXT))),
)  # fmt: skip
TEMPLATE = fields(spec=POD)
JOB = fields(
    "template", parallelism=NUMBER, completions=NUMBER, completionMode=TEXT, backoffLimit=NUMBER,
    activeDeadlineSeconds=NUMBER, template=TEMPLATE,
)  # fmt: skip
JOBSET = fields(
    apiVersion=TEXT, kind=TEXT, metadata=FREE,
    spec=fields(
        suspend=SWITCH, failurePolicy=fields(maxRestarts=NUMBER),
        replicatedJobs=list_of(fields("name", "template", name=TEXT, replicas=NUMBER, template=fields(spec=JOB))),
    ),
)  # fmt: skip
RAY_PARAMETERS: Schema = {"type": "object", "additionalProperties": TEXT}
WORKERS = fields(
    "groupName", "maxReplicas", "minReplicas", "template", groupName=TEXT, replicas=NUMBER, minReplicas=NUMBER,
    maxReplicas=NUMBER, rayStartParams=RAY_PARAMETERS, template=TEMPLATE,
)  # fmt: skip
RAYJOB = fields(
    apiVersion=TEXT, kind=TEXT, metadata=FREE,
    spec=fields(
        entrypoint=TEXT, shutdownAfterJobFinishes=SWITCH, activeDeadlineSeconds=NUMBER, suspend=SWITCH,
        rayClusterSpec=fields(
            "headGroupSpec", headGroupSpec=fields("template", rayStartParams=RAY_PARAMETERS, template=TEMPLATE),
            workerGroupSpecs=list_of(WORKERS),
        ),
    ),
)  # fmt: skip
REPLICAS = fields(replicas=NUMBER, restartPolicy=TEXT, template=fields(spec=POD))
PYTORCHJOB = fields(
    apiVersion=TEXT, kind=TEXT, metadata=FREE,
    spec=fields(
        "pytorchReplicaSpecs", runPolicy=fields(suspend=SWITCH, backoffLimit=NUMBER, activeDeadlineSeconds=NUMBER),
        pytorchReplicaSpecs={"type": "object", "additionalProperties": REPLICAS},
    ),
)  # fmt: skip
PORT: Schema = {"type": ["integer", "string"]}
PROBE = fields(httpGet=fields("port", path=TEXT, port=PORT), periodSeconds=NUMBER, failureThreshold=NUMBER)
READINESS = fields(
    httpGet=fields(path=TEXT, port=PORT), periodSeconds=NUMBER, failureThreshold=NUMBER
)  # KServe knows the port
SERVER = fields(
    "name", **CONTAINER["properties"], ports=list_of(fields("containerPort", containerPort=NUMBER, protocol=TEXT)),
    startupProbe=PROBE, readinessProbe=READINESS, lifecycle=fields(preStop=fields(sleep=fields("seconds", seconds=NUMBER))),
)  # fmt: skip
INFERENCESERVICE = fields(
    apiVersion=TEXT, kind=TEXT, metadata=FREE,
    spec=fields(
        "predictor",
        predictor=fields(
            minReplicas=NUMBER, maxReplicas=NUMBER, scaleMetric=TEXT, scaleTarget=NUMBER,
            terminationGracePeriodSeconds=NUMBER, containers=list_of(SERVER), volumes=POD["properties"]["volumes"],
        ),
    ),
)  # fmt: skip
RAYSERVICE = fields(
    apiVersion=TEXT, kind=TEXT, metadata=FREE,
    spec=fields(
        "rayClusterConfig", serveConfigV2=TEXT,
        rayClusterConfig=fields(
            "headGroupSpec", enableInTreeAutoscaling=SWITCH,
            headGroupSpec=fields("template", rayStartParams=RAY_PARAMETERS, template=TEMPLATE),
            workerGroupSpecs=list_of(WORKERS),
        ),
    ),
)  # fmt: skip
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
DEPLOYMENT = fields(
    apiVersion=TEXT, kind=TEXT, metadata=FREE,
    spec=fields(
        "selector", "template", replicas=NUMBER,
        strategy=fields(type=TEXT, rollingUpdate=fields(maxSurge=NUMBER, maxUnavailable=NUMBER)),
        selector=fields(matchLabels=LABELS),
        template=fields(
            metadata=fields(labels=LABELS),
            spec=fields(
                "containers", containers=list_of(SERVER), terminationGracePeriodSeconds=NUMBER,
                volumes=POD["properties"]["volumes"],
            ),
        ),
    ),
)  # fmt: skip
SERVICE = fields(
    apiVersion=TEXT, kind=TEXT, metadata=FREE,
    spec=fields(selector=LABELS, ports=list_of(fields("port", name=TEXT, port=NUMBER, targetPort=NUMBER))),
)  # fmt: skip
OWN: dict[str, Schema] = {
    "JobSet": JOBSET, "RayJob": RAYJOB, "PyTorchJob": PYTORCHJOB, "InferenceService": INFERENCESERVICE,
    "RayService": RAYSERVICE, "Deployment": DEPLOYMENT, "Service": SERVICE,
}  # fmt: skip


def schema_faults(text: str) -> list[str]:
    """Returns the faults of objects, given as YAML: path and message."""
    return [
        f"{'.'.join(map(str, fault.instance_path))}: {fault.message}"
        for document in yaml.safe_load_all(text)
        for schema in _schemas(document["kind"])
        for fault in jsonschema_rs.validator_for(schema).iter_errors(document)
    ]


def _schemas(kind: str) -> list[Schema]:
    return [OWN[kind], *([published_schema(kind)] if HAS_FILES and kind in FILES else [])]


@cache
def published_schema(kind: str) -> Schema:
    """Returns the published schema of a kind, which refuses unknown fields as the API server with strict validation does.
    Needs HEADWAY_CRDS."""
    file, version = FILES[kind]
    definition = yaml.safe_load((Path(os.environ["HEADWAY_CRDS"]) / file).read_text())
    schema: Schema = next(
        one["schema"]["openAPIV3Schema"] for one in definition["spec"]["versions"] if one["name"] == version
    )
    _closed(schema)
    schema["properties"]["metadata"] = FREE
    return schema


def _closed(schema: Any) -> None:
    if isinstance(schema, list):
        for member in schema:
            _closed(member)
    elif isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        if schema.get("x-kubernetes-int-or-string"):
            for key in ("anyOf", "pattern"):
                schema.pop(key, None)
            schema["type"] = ["integer", "string"]
        for member in list(schema.values()):
            _closed(member)


def differences(own: Schema, published: Schema, path: str = "") -> list[str]:
    """Returns where a schema of this module is not a part of the published one."""
    found = (
        [] if own["type"] == published.get("type") else [f"{path}: {own['type']}, published {published.get('type')}"]
    )
    if "properties" in own:
        of_both = own["properties"].keys() & published["properties"].keys()
        found += [f"{path}.{name}: not published" for name in own["properties"].keys() - of_both]
        required = set(published.get("required", ())) & own["properties"].keys()
        if set(own["required"]) != required:
            found.append(f"{path}: requires {own['required']}, published {sorted(required)}")
        for name in of_both:
            found += differences(own["properties"][name], published["properties"][name], f"{path}.{name}")
    if isinstance(own.get("additionalProperties"), dict) and own["additionalProperties"]["type"] == "object":
        found += differences(own["additionalProperties"], published["additionalProperties"], f"{path}.*")
    if own["type"] == "array":
        found += differences(own["items"], published["items"], f"{path}[]")
    return found
