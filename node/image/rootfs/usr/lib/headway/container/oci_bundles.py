"""Runs OCI bundles for `srun --container=BUNDLE` with crun, as the job's user in the step's cgroup (/etc/slurm/oci.conf).

Slurm copies the bundle's config.json into a folder of the task and puts the program and its environment into it. What a bundle
made elsewhere can't have is added to that copy: the job's GPUs, and where the image has the program.
"""

from __future__ import annotations

import glob
import json
import os
import stat
from typing import Any

from messages import Failed, print_message
from sandbox import DRIVER_PLACE, SECRETS, Sandbox

CRUN = "/usr/bin/crun"


def run(bundle: str, container: str) -> None:
    """Becomes crun with the container's program. Raises Failed."""
    path = os.path.join(bundle, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    complete(config)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    if not os.path.exists(CRUN):
        raise Failed(f"{CRUN} is missing on {os.uname().nodename}", "use --container-image, or ask your administrator")
    # The step's own cgroup holds and ends what runs in the container; the job's /tmp ends with the job.
    words = ["--rootless=true", "--cgroup-manager=disabled", f"--root=/tmp/.oci-{os.getuid()}"]
    os.execv(CRUN, [CRUN, *words, "run", "--bundle", bundle, container])


def query(container: str) -> None:
    """Prints that the container has stopped. Slurm asks when the container's program has ended, and outside of the job, which
    alone sees crun's folder."""
    print(json.dumps({"ociVersion": "1.0.0", "id": container, "status": "stopped", "pid": 0, "bundle": ""}))


def complete(config: dict[str, Any]) -> None:
    """Adds the job's GPUs to a bundle's configuration, and finds its program in the image."""
    process, mounts = config["process"], config.setdefault("mounts", [])
    environment = dict(entry.partition("=")[::2] for entry in process.get("env", ()))
    root = config["root"]["path"]
    words = _gpu_mounts(root, environment)
    for kind, source, target in zip(words[::3], words[1::3], words[2::3], strict=True):
        mounts.append(_bind(source, target, "ro" if kind == "--ro-bind" else "rw"))
    if "CUDA_VISIBLE_DEVICES" in environment:
        devices = [*glob.glob("/dev/nvidia*"), *glob.glob("/dev/nvidia-caps/*")]
        mounts += [_bind(path, path, "rw") for path in sorted(devices) if _is_device(path)]
    if environment.get("HEADWAY_SECRETS_DIR") == SECRETS and os.path.isdir(SECRETS):
        if os.path.isdir(root + SECRETS) or os.access(root, os.W_OK):
            mounts.append(_bind(SECRETS, SECRETS, "ro"))
        else:
            print_message(f"{root} is not yours to change: the container does not have the job's secrets")
    if any(DRIVER_PLACE in word for word in words):
        others = environment.get("LD_LIBRARY_PATH")
        process["env"].append(f"LD_LIBRARY_PATH={DRIVER_PLACE}{f':{others}' if others else ''}")
    process["args"] = _found(process["args"], root, environment.get("PATH", ""))


def _gpu_mounts(root: str, environment: dict[str, str]) -> list[str]:
    """Returns bubblewrap's words for nvidia-smi and the driver's libraries; none where the bundle's files are another's, for
    crun makes the places of mounts in them."""
    words = Sandbox(root, environment).gpus()
    if words and not os.access(root, os.W_OK):
        print_message(
            f"{root} is not yours to change: the container has the job's GPUs, but not nvidia-smi and the driver's libraries"
        )
        return []
    return words


def _found(args: list[str], root: str, path: str) -> list[str]:
    """Returns the command; srun has looked its program up on the machine it was typed on, the image may have it elsewhere."""
    if not args or not args[0].startswith("/") or os.path.lexists(root + args[0]):
        return args
    name = os.path.basename(args[0])
    places = [f"{folder}/{name}" for folder in path.split(":") if folder.startswith("/")]
    return [next((place for place in places if os.path.lexists(root + place)), args[0]), *args[1:]]


def _bind(source: str, target: str, mode: str) -> dict[str, Any]:
    return {"destination": target, "source": source, "type": "bind", "options": ["bind", mode]}


def _is_device(path: str) -> bool:
    return stat.S_ISCHR(os.stat(path).st_mode)
