"""JSON Schema of the cluster file for editors and `headway schema`, generated from the models that check the file."""

from __future__ import annotations

from typing import Any

from headway.catalog import allowed_slurm_keys
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.clusterfile.models.hosts import HostsSourcePart


def cluster_file_schema() -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of cluster.yaml."""
    document = ClusterFile.model_json_schema()
    parts: dict[str, Any] = document["$defs"]
    for part in (document, *parts.values()):
        part["title"] = str(part.get("title", "")).removesuffix("Part")
    document["title"] = "Headway cluster file"
    document["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    document["anyOf"] = [{"required": ["plan", "nodes"]}, {"required": ["groups"]}]
    hosts = document["properties"]["hosts"]
    hosts["items"] = {"anyOf": [{"type": "string", "description": "An address."}, hosts["items"]]}
    listed = {key: hosts.pop(key) for key in ("type", "items", "maxItems")}
    source = HostsSourcePart.model_json_schema()
    source["title"] = "HostsSource"
    source["oneOf"] = [{"required": ["from"]}, {"required": ["file"]}]
    parts["HostsSourcePart"] = source
    hosts["anyOf"] = [listed, {"$ref": "#/$defs/HostsSourcePart"}]
    jump = parts["HostPart"]["properties"]["jump"]
    jump["anyOf"] = [{"type": "string", "description": "An address."}, *jump["anyOf"]]
    _list_keys(document["properties"]["slurm"], allowed_slurm_keys.CLUSTER_KEYS)
    _list_keys(parts["PartitionPart"]["properties"]["slurm"], allowed_slurm_keys.PARTITION_KEYS)
    for mapping, part in (
        ("partitions", "PartitionPart"),
        ("teams", "TeamPart"),
        ("qos", "QosPart"),
        ("users", "UserPart"),
    ):
        # An entry with an empty value gets every default.
        document["properties"][mapping]["additionalProperties"] = {
            "anyOf": [{"$ref": f"#/$defs/{part}"}, {"type": "null"}]
        }
    return document


def _list_keys(field: dict[str, Any], keys: dict[str, allowed_slurm_keys.SlurmKey]) -> None:
    field["properties"] = {name: _key(key) for name, key in keys.items()}
    field["additionalProperties"] = False


def _key(key: allowed_slurm_keys.SlurmKey) -> dict[str, Any]:
    only = f" (Slurm {key.since} or later)" if key.since else ""
    return {"type": ["string", "integer"], "description": f"{key.form}{only}"}
