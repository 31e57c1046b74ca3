"""Schemas of JobSet and RayJob for tests: the fields that Headway writes, with the names, types and requirements of the
published definitions, and nothing else allowed.

Source: jobset.x-k8s.io_jobsets.yaml of kubernetes-sigs/jobset at 08dfbdfd, version v1alpha2, and ray.io_rayjobs.yaml of
ray-project/kuberay at feeaf72f, version v1 (both Apache License 2.0). With HEADWAY_CRDS=FOLDER, a folder with these two
files, objects are also compared with the files, and the fields below as well."""

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
FILES = {"JobSet": ("jobset.x-k8s.io_jobsets.yaml", "v1alpha2"), "RayJob": ("ray.io_rayjobs.yaml", "v1")}
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
OWN: dict[str, Schema] = {"JobSet": JOBSET, "RayJob": RAYJOB}


def schema_faults(text: str) -> list[str]:
    """Returns the faults of an object, given as YAML: path and message."""
    document = yaml.safe_load(text)
    kind = document["kind"]
    schemas = [OWN[kind], *([published_schema(kind)] if HAS_FILES else [])]
    return [
        f"{'.'.join(map(str, fault.instance_path))}: {fault.message}"
        for schema in schemas
        for fault in jsonschema_rs.validator_for(schema).iter_errors(document)
    ]


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
    if own["type"] == "array":
        found += differences(own["items"], published["items"], f"{path}[]")
    return found
