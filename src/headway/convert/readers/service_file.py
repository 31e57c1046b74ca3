"""Reads service files of Headway, to write them as Kubernetes objects."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from headway.convert.job_description import Job, Place, Served
from headway.convert.readers.slurm import docker_name, read_mount, read_option
from headway.convert.reading_state import Reading
from headway.domain.slurm.sbatch_options import parse_options

PORT = 8000
_OPTIONS = {"name": "job-name", "partition": "partition", "team": "account", "nodes": "nodes"}
_DEFAULTS: Mapping[str, Any] = {"health": "/health", "start_s": 600, "drain_s": 300}
_REQUESTS = 8
_READ = {*_OPTIONS, *_DEFAULTS, "run", "time", "gpus", "replicas", "env", "container", "sbatch", "launcher"}
LOST = {
    "hold_s": ("no proxy holds requests", "let clients try again"),
    "secrets": ("secrets of jobs are not in Kubernetes", "make a Secret, and name it in env by secretKeyRef"),
    "environment": ("images have no environments", "take an image with the software"),
    "stage_in": ("pods have no datasets", "mount a volume with the data"),
    "warn": ("a pod gets SIGTERM at its end", "see terminationGracePeriodSeconds"),
}


def read_service(reading: Reading, document: Mapping[str, Any]) -> tuple[Job, Served]:
    """Returns a replica as a job, and how the service is served. `document` is a service file that the server has checked."""
    job = reading.job
    for name, long_name in _OPTIONS.items():
        if name in document:
            reading.set(Place(name, str(document[name])), long_name, str(document[name]))
    if document.get("time"):
        reading.same(Place("time", str(document["time"])), "pods have no time limit")
    if document.get("gpus"):
        reading.set(Place("gpus", str(document["gpus"])), "gpus-per-node", str(document["gpus"]))
    for option in parse_options(document.get("sbatch", ())):
        read_option(reading, Place("sbatch", " ".join(option.words)), option)
    for name, value in document.get("env", {}).items():
        reading.set_variable(Place(f"env.{name}", name), name, value)
    _read_container(reading, document.get("container") or {})
    for name in document.keys() - _READ:
        if document[name]:
            reading.lose(Place(name, str(document[name])[:60]), *LOST.get(name, ("Kubernetes has no counterpart", "")))
    reading.change(
        Place("run", "the service's folder"), "pods have the image's files", "build the image with the files"
    )
    return job, _served(job, document)


def _served(job: Job, document: Mapping[str, Any]) -> Served:
    job.environment |= {"HEADWAY_SERVE_PORT": str(PORT), "HEADWAY_SERVE_PATH": ""}
    run = document["run"]
    words = shlex.split(run) if isinstance(run, str) else run
    replicas = document.get("replicas", 1)
    limits = {"min": replicas, "max": replicas} if isinstance(replicas, int) else replicas
    values = {**_DEFAULTS, **document}
    return Served(
        tuple(word.replace("{port}", str(PORT)) for word in words), PORT, values["health"], limits.get("min", 1),
        limits.get("max", 1), limits.get("requests", _REQUESTS), values["start_s"], values["drain_s"],
    )  # fmt: skip


def _read_container(reading: Reading, container: Mapping[str, Any]) -> None:
    if image := container.get("image"):
        reading.job.image = docker_name(image)
        reading.carry(Place("container.image", image))
    if workdir := container.get("workdir"):
        reading.job.workdir = workdir
        reading.carry(Place("container.workdir", workdir))
    for text in container.get("mounts", ()):
        read_mount(reading, Place("container.mounts", text), text)
