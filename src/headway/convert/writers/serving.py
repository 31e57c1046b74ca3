"""Writes objects that serve HTTP: a Deployment with its Service, an InferenceService of KServe, a RayService of KubeRay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headway.convert.job_description import Job, Loss, Served
from headway.convert.writers.pod_template import PodWriter, dns_name, escape_dollars, metadata, node_count
from headway.errors import Fault, InvalidSpec
from headway.validation.yaml_parser import dump_yaml

_PROBE_S = 5
_UNHEALTHY_S = 30  # a replica that fails this long gets no requests, as on Slurm
_ENDPOINT_S = 10  # until no proxy sends a pod that ends further requests
_RAY_SERVE = re.compile(r"(?:.*/)?serve")
_RAY_APPLICATION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def write_deployment(job: Job, served: Served) -> tuple[str, list[Loss]]:
    """Returns a Deployment and its Service as YAML, and what of the service they do not contain. Raises InvalidSpec without an
    image, and for replicas of several nodes."""
    name, writer, losses = _begin(job)
    container = _container(writer, "server", served)
    probe = {"httpGet": {"path": served.health, "port": served.port}, "periodSeconds": _PROBE_S}
    container["startupProbe"] = probe | {"failureThreshold": -(-served.start_s // _PROBE_S)}
    container["readinessProbe"] = probe | {"failureThreshold": _UNHEALTHY_S // _PROBE_S}
    container["lifecycle"] = {"preStop": {"sleep": {"seconds": _ENDPOINT_S}}}
    pod = {"containers": [container], "terminationGracePeriodSeconds": served.drain_s + _ENDPOINT_S}
    pod |= writer.volumes()
    replicas = max(1, served.least)
    if served.most > replicas or not served.least:
        why = f"{replicas} replica{'s run' if replicas > 1 else ' runs'} all the time"
        losses.append(Loss("replicas", "min, max, requests", "lost", why,
                           "add a HorizontalPodAutoscaler or KEDA, or write an InferenceService"))  # fmt: skip
    losses.append(Loss("drain_s", str(served.drain_s), "changed", "a pod that ends gets SIGTERM, and no new requests",
                       "the server must finish its requests at SIGTERM"))  # fmt: skip
    writer.finish()
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(job, name),
        "spec": {"replicas": replicas, "strategy": strategy, "selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": served.port}]},
    }  # fmt: skip
    return f"{dump_yaml(deployment)}---\n{dump_yaml(service)}", losses


def write_inference_service(job: Job, served: Served) -> tuple[str, list[Loss]]:
    """Returns an InferenceService as YAML, and what of the service it does not contain. Raises InvalidSpec without an image, and
    for replicas of several nodes."""
    name, writer, losses = _begin(job)
    container = _container(writer, "kserve-container", served)
    container["readinessProbe"] = {"httpGet": {"path": served.health, "port": served.port}, "periodSeconds": _PROBE_S}
    losses.append(Loss("drain_s", str(served.drain_s), "changed", "a pod that ends gets SIGTERM, and no new requests",
                       "the server must finish its requests at SIGTERM"))  # fmt: skip
    if not served.least:
        losses.append(Loss("replicas.min", "0", "changed", "only KServe with Knative ends the last replica", ""))
    predictor: dict[str, Any] = {
        "minReplicas": served.least, "maxReplicas": served.most, "scaleMetric": "concurrency",
        "scaleTarget": served.requests, "terminationGracePeriodSeconds": served.drain_s, "containers": [container],
    }  # fmt: skip
    predictor |= writer.volumes()
    writer.finish()
    document = {
        "apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": metadata(job, name),
        "spec": {"predictor": predictor},
    }  # fmt: skip
    return dump_yaml(document), losses


def write_ray_service(job: Job, served: Served) -> tuple[str, list[Loss]]:
    """Returns a RayService as YAML, and what of the service it does not contain. Raises InvalidSpec without an image, and for a
    command that is not `serve run MODULE:APPLICATION`."""
    application = next((word for word in served.words if _RAY_APPLICATION.fullmatch(word)), "")
    if not (_RAY_SERVE.fullmatch(served.words[0]) and served.words[1:2] == ("run",) and application):
        fault = Fault("run", "is no application of Ray Serve", "serve run MODULE:APPLICATION, or write a Deployment")
        raise InvalidSpec([fault], "the service")
    name, writer, losses = _begin(job)
    head = writer.pod("ray-head", [])
    # The head has no GPU: replicas run on workers.
    limits = head["containers"][0].pop("resources", {}).get("limits", {})
    if "nvidia.com/gpu" not in limits:
        losses.append(Loss("gpus", "0", "changed", "replicas run on workers with CPUs", ""))
    rest = [word for word in served.words[2:] if word != application]
    if rest:
        losses.append(Loss("run", " ".join(rest)[:60], "lost", "KubeRay starts Ray Serve", "set it in serveConfigV2"))
    losses.append(Loss("replicas.requests", str(served.requests), "changed", "Ray Serve scales its replicas; workers follow",
                       "set target_ongoing_requests of the deployment in the program"))  # fmt: skip
    config = {"applications": [{"name": name, "import_path": application, "route_prefix": "/"}]}
    workers = {
        "groupName": "workers", "replicas": max(1, served.least), "minReplicas": max(1, served.least),
        "maxReplicas": max(1, served.most), "rayStartParams": {}, "template": {"spec": writer.pod("ray-worker", [])},
    }  # fmt: skip
    writer.finish()
    cluster: dict[str, Any] = {
        "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": {"spec": head}},
        "workerGroupSpecs": [workers],
    }
    if served.most > served.least:
        cluster = {"enableInTreeAutoscaling": True, **cluster}
    document = {
        "apiVersion": "ray.io/v1", "kind": "RayService", "metadata": metadata(job, name),
        "spec": {"serveConfigV2": dump_yaml(config), "rayClusterConfig": cluster},
    }  # fmt: skip
    return dump_yaml(document), losses


def _begin(job: Job) -> tuple[str, PodWriter, list[Loss]]:
    if node_count(job) > 1:
        fault = Fault("nodes", "a replica has several nodes, which these objects have not", "see LeaderWorkerSet")
        raise InvalidSpec([fault], "the service")
    losses: list[Loss] = []
    return dns_name(job, losses), PodWriter(job, losses), losses


def _container(writer: PodWriter, name: str, served: Served) -> dict[str, Any]:
    words = [escape_dollars(word) for word in served.words]
    container: Mapping[str, Any] = writer.pod(name, words)["containers"][0]
    return {**container, "ports": [{"containerPort": served.port, "protocol": "TCP"}]}
