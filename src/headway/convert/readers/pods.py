"""Reads what all Kubernetes objects share: metadata, and the template of a pod."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from headway.convert.job_description import Group, Mount, Place
from headway.convert.quantities import cpu_count, memory_mib, slurm_memory, slurm_time
from headway.convert.reading_state import LOGIN_REMEDY, SECRET_REMEDY, Reading
from headway.convert.yaml_fields import Field

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_]\w*)\)")
_SHELLS = ("bash", "sh", "/bin/bash", "/bin/sh", "/usr/bin/bash")
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_NOT_CARRIED = "Slurm has no counterpart"
REASONS = {
    "namespace": ("Slurm has accounts and partitions", "see --account and --partition"),
    "labels": ("Slurm has no labels", "see --comment and --wckey"),
    "annotations": ("Slurm has no annotations", "see --comment"),
    "generateName": ("Slurm numbers jobs", "see --job-name"),
    "tolerations": ("partitions say who may use nodes", "see --partition"),
    "affinity": ("the form is Kubernetes' own", "see --constraint, --nodelist and --switches"),
    "nodeSelector": ("labels of nodes have no meaning in Slurm", "see --constraint and --partition"),
    "topologySpreadConstraints": ("Slurm places nodes by its topology", "see --switches"),
    "serviceAccountName": ("a job runs as the user who submits it", ""),
    "serviceAccount": ("a job runs as the user who submits it", ""),
    "imagePullSecrets": ("credentials of registries are the user's", LOGIN_REMEDY),
    "schedulerName": ("Slurm is the scheduler", ""),
    "priorityClassName": ("Slurm computes priorities", "see --qos and --nice"),
    "priority": ("Slurm computes priorities", "see --qos and --nice"),
    "initContainers": ("a job has no container that runs before it", "run its command at the begin of the script"),
    "ports": ("the job has the node's network", ""),
    "livenessProbe": ("Slurm asks no program whether it lives", "see --comment stall=SECONDS"),
    "readinessProbe": ("Slurm asks no program whether it is ready", ""),
    "startupProbe": ("Slurm asks no program whether it is ready", ""),
    "lifecycle": ("Slurm runs no hooks of a container", "see --signal for the end"),
    "securityContext": ("a job runs as the user who submits it", "see --container-remap-root"),
    "volumeMounts": ("the volume is not in the file", ""),
    "volumes": ("no container mounts it", ""),
    "envFrom": ("the values are in another object", f"set the variables in the script; {SECRET_REMEDY}"),
    "hostAliases": (_NOT_CARRIED, ""),
    "runtimeClassName": (_NOT_CARRIED, ""),
    "terminationGracePeriodSeconds": ("the cluster's KillWait is the time between the signals", "see --signal"),
    "ephemeral-storage": ("its form is not carried", "see --tmp"),
    "resourceClaims": (_NOT_CARRIED, "see --gres"),
    "backoffLimit": ("Slurm repeats a job only after its node failed", "see --requeue, and headway job retry"),
    "podFailurePolicy": ("Slurm repeats a job only after its node failed", "see --requeue"),
    "successPolicy": ("a job ends well if its batch script does", "test the results in the script"),
    "failurePolicy": ("Slurm repeats a job only after its node failed", "see --requeue"),
    "startupPolicy": ("all nodes of a job start at once", ""),
    "dependsOn": ("all nodes of a job start at once", "make a job of each, and submit with --dependency=after:JOB"),
    "managedBy": (_NOT_CARRIED, ""),
    "schedulingPolicy": ("Slurm starts all nodes of a job at once", "see --qos and --partition"),
    "status": ("it is the state of a running object", ""),
}  # fmt: skip
SAME = {
    "apiVersion": "it belongs to Kubernetes",
    "kind": "it belongs to Kubernetes",
    "restartPolicy": "Slurm restarts no single program of a job",
    "hostNetwork": "jobs have the node's network",
    "hostIPC": "jobs have the node's shared memory",
    "dnsPolicy": "jobs have the node's resolver",
    "subdomain": "nodes of a job reach each other by name",
    "setHostnameAsFQDN": "nodes of a job reach each other by name",
    "hostname": "nodes of a job reach each other by name",
    "network": "nodes of a job reach each other by name",
    "imagePullPolicy": "an image is fetched once for each digest",
    "ttlSecondsAfterFinished": "ended jobs leave the queue by themselves",
    "cleanPodPolicy": "a job's processes end with it",
    "terminationMessagePath": "the log has all output",
    "terminationMessagePolicy": "the log has all output",
    "creationTimestamp": "it is the state of a running object",
    "uid": "it is the state of a running object",
    "resourceVersion": "it is the state of a running object",
    "tty": "a batch job has no terminal",
    "stdin": "a batch job has no terminal",
    "automountServiceAccountToken": "a job gets no token of Kubernetes",
    "enableServiceLinks": "a job gets no variables of Kubernetes",
    "manualSelector": "it belongs to Kubernetes",
    "selector": "it belongs to Kubernetes",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pod:
    """The program of a pod: shell text, the shell that runs it, and the words if it is one command."""

    text: str
    words: tuple[str, ...]
    shell: str

    def group(self, name: str, nodes: int, *variables: tuple[str, str]) -> Group:
        """Returns a group of nodes that run the pod's program."""
        return Group(name, nodes, self.text, self.words, self.shell, variables)


def read_pod(reading: Reading, spec: Field, *, needs_command: bool = True) -> Pod:
    """Returns the program of a pod, and carries its image, variables, mounts and resources. Raises InvalidSpec without a
    container, and without a command if one is needed."""
    containers = spec["containers"]
    container = containers[0]
    if not isinstance(container.value, dict):
        raise containers.fault("names no container", "add a container with image and command")
    for further in list(containers.items())[1:]:
        further.lose("a job has one container on each node", "start its command from the script, in the background")
    set_image(reading, container["image"])
    if container["name"]:
        container["name"].same("the job has a name")
    _mounts(reading, spec, container)
    if container["workingDir"] and not reading.job.workdir:
        reading.job.workdir = container["workingDir"].text()
    names = _variables(reading, container)
    _resources(reading, container["resources"])
    words = container["command"].words() + container["args"].words()
    if needs_command and not container["command"].words():
        raise container.fault(
            "names no command; the file does not say which program the image starts",
            "add command: [PROGRAM, ...]; skopeo inspect --config docker://IMAGE shows the image's own",
        )
    return _program(words, names)


def set_image(reading: Reading, field: Field) -> None:
    """Carries an image. Of several different ones the first."""
    image = field.text()
    if reading.job.image and image and image != reading.job.image:
        field.lose("all nodes of a job run one image", "name the other image at a srun of its own: --container-image")
        return
    reading.job.image = image or reading.job.image


def _program(words: list[str], names: Collection[str]) -> Pod:
    if len(words) == 3 and words[0] in _SHELLS and re.fullmatch(r"-[a-z]*c", words[1]):
        shell = words[0].rpartition("/")[2]
        options = words[1].removeprefix("-").replace("c", "").replace("l", "").replace("i", "")
        text = _expanded(words[2], names)
        return Pod(f"set -{options}\n{text}" if options else text, (), shell)
    shown = tuple(shell_word(word, names) for word in words)
    return Pod(" ".join(shown), shown, "sh" if words[:1] and words[0] in ("sh", "/bin/sh") else "bash")


def _expanded(text: str, names: Collection[str]) -> str:
    """Returns shell text with Kubernetes' $(NAME) as the shell writes it. Other $(...) are commands of the shell."""
    return _REFERENCE.sub(
        lambda found: "$" if found[1] is None else f"${{{found[1]}}}" if found[1] in names else found[0], text
    )


def shell_word(word: str, names: Collection[str]) -> str:
    """Returns a word quoted for the shell, in which Kubernetes' $(NAME) becomes the shell's variable."""
    parts: list[str] = []
    at = 0
    for found in _REFERENCE.finditer(word):
        if found[1] is not None and found[1] in names:
            parts += [_quoted(word[at : found.start()].replace("$$", "$")), f'"${{{found[1]}}}"']
            at = found.end()
    parts.append(_quoted(word[at:].replace("$$", "$")))
    return "".join(parts) or "''"


def _quoted(text: str) -> str:
    return shlex.quote(text) if text else ""


def _variables(reading: Reading, container: Field) -> set[str]:
    """Carries env, and returns the names that there are."""
    names: set[str] = set()
    own: dict[str, str] = {}  # values of this container so far
    declared = {item["name"].text() for item in container["env"].items()}
    for item in container["env"].items():
        name = item["name"].text()
        source = item["valueFrom"]
        if source["secretKeyRef"]:
            source.lose("secrets of Kubernetes are not in the file", SECRET_REMEDY)
        elif source["fieldRef"]:
            path = source["fieldRef"]["fieldPath"].text()
            better = {
                "metadata.name": "$SLURM_JOB_NAME",
                "spec.nodeName": "$SLURMD_NODENAME",
                "metadata.namespace": "",
            }.get(path, "")
            better = "$SLURM_PROCID" if "job-completion-index" in path else better
            source.lose("a job has no fields of Kubernetes", f"use {better}" if better else "")
        elif source:
            source.lose("the value is in another object", f"set {name} in the script")
        else:
            names.add(name)
            value = item["value"]
            before = reading.job.environment.get(name)
            text = _resolved(value.text(), own)
            if before is not None and before != text:
                value.lose(
                    "all nodes of a job have the same environment; another group sets it first", "set it in the script"
                )
                continue
            reading.set_variable(item.place, name, text)
            if reading.job.environment.get(name) == text:
                own[name] = text
                missing = sorted(
                    {found[1] for found in _REFERENCE.finditer(value.text()) if found[1] in declared - own.keys()}
                )
                if missing:
                    why = f"the value of {', '.join(missing)} is not copied, or is set below it"
                    reading.change(value.place, why, f"set {name} in the script")
    names |= {"JOB_COMPLETION_INDEX"}
    return names


def _resolved(text: str, values: Mapping[str, str]) -> str:
    """Returns the value of a variable in which $(NAME) is the value of an earlier one, and $$ is $, as in Kubernetes."""
    return _REFERENCE.sub(lambda found: "$" if found[1] is None else values.get(found[1], found[0]), text)


def _resources(reading: Reading, resources: Field) -> None:
    limits, requests = resources["limits"], resources["requests"]
    for name in _GPUS:
        set_most(reading, limits[name], "gpus-per-node", _count, str)
        set_most(reading, requests[name], "gpus-per-node", _count, str)
    set_most(reading, limits["memory"], "mem", _kubernetes_memory, slurm_memory)
    set_most(reading, requests["memory"], "mem", _kubernetes_memory, slurm_memory)
    set_most(reading, limits["cpu"], "cpus-per-task", cpu_count, str)
    set_most(reading, requests["cpu"], "cpus-per-task", cpu_count, str)
    for source in (limits, requests):
        for name, field in source.members():
            if name.startswith(("rdma/", "vpc.amazonaws.com/efa", "hugepages-")):
                field.same("jobs see the node's fabric and memory pages")
            elif name.startswith("nvidia.com/mig-"):
                field.lose("parts of GPUs have other names", "see --gres=gpu:PROFILE:COUNT")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("is no whole number")
    return int(text)


def _kubernetes_memory(text: str) -> int:
    return memory_mib(text, thousands=True)


def set_most(
    reading: Reading, field: Field, option: str, count: Callable[[str], int], shown: Callable[[int], str]
) -> None:
    """Carries an amount. If another place has set the option, the larger one counts, and the other is a change."""
    if not field:
        return
    try:
        amount = count(field.text())
    except ValueError as error:
        raise field.fault(str(error), "write an amount such as 8 or 64Gi") from None
    if amount == 0:
        field.same("nothing is requested")
        return
    before = reading.job.options.get(option)
    place = reading.job.places.get(option)
    if before is None or place is None:
        reading.set(field.place, option, shown(amount))
        return
    if before == shown(amount):
        return
    reading.job.options[option] = shown(max(amount, _amount(before)))
    lower = field.place if _amount(before) > amount else place
    reading.change(
        lower, f"nodes of a job are equal: the larger amount counts, --{option}={reading.job.options[option]}"
    )
    reading.job.places[option] = place if lower is not place else field.place


def _amount(shown: str) -> int:
    return memory_mib(shown) if shown[-1:] in "GM" else int(shown)


def _mounts(reading: Reading, spec: Field, container: Field) -> None:
    volumes = {str(volume["name"].value): volume for volume in spec["volumes"].items()}
    for mount in container["volumeMounts"].items():
        volume = volumes.get(str(mount["name"].value))
        if volume is None:
            continue
        path = mount["mountPath"].value
        if not isinstance(path, str) or not path.startswith("/") or re.search(r"[,:\s]", path):
            raise mount["mountPath"].fault(
                "is no absolute path without blanks, colons and commas", "name the folder in the container"
            )
        if path == "/dev/shm":
            mount.same("jobs have shared memory of their own")
            volume.same("jobs have shared memory of their own")
            continue
        _mount(reading, mount, volume, path)


def _mount(reading: Reading, mount: Field, volume: Field, path: str) -> None:
    host, empty = volume["hostPath"], volume["emptyDir"]
    if host:
        source = "/".join(filter(None, [host["path"].text().rstrip("/") or "/", mount["subPath"].text()]))
        if re.search(r"[,:\s]", source):
            volume.lose("a mount has no blanks, colons and commas in its folder", "mount a folder without them")
            return
        add_mount(reading, mount.place, Mount(source, path, mount["readOnly"].text() == "true"))
        host["type"].same("sbatch does not look whether a folder is there")
        mount.mark()
        volume["name"].mark()
    elif isinstance(volume.value, dict) and "emptyDir" in volume.value:
        add_mount(reading, mount.place, Mount("tmpfs", path))
        mount.mark()
        volume["name"].mark()
        if empty:
            empty.change("it is an empty folder in memory", "use /tmp of the job for large files")
    else:
        kind = next((name for name, _ in volume.members() if name != "name"), "")
        remedy = {
            "persistentVolumeClaim": f"mount a shared folder: --container-mounts=/scratch/FOLDER:{path}",
            "secret": SECRET_REMEDY,
            "configMap": f"put the files into a shared folder, and mount it: --container-mounts=FOLDER:{path}",
            "nfs": f"add the share as storage to the cluster, and mount it: --container-mounts=FOLDER:{path}",
        }.get(kind, f"mount a shared folder: --container-mounts=FOLDER:{path}")
        volume.lose(f"the node does not have this volume; {path} is missing in the container", remedy)
        mount.lose("its volume is not carried", remedy)


def add_mount(reading: Reading, place: Place, mount: Mount) -> None:
    """Adds a mount to the job, unless another folder is mounted there."""
    if reading.job.mounts.setdefault(mount.target, mount) != mount:
        reading.lose(place, f"another folder is mounted at {mount.target}", "mount it at another path")


def set_name(reading: Reading, root: Field) -> None:
    """Carries metadata.name."""
    name = root["metadata"]["name"]
    if name:
        reading.set(name.place, "job-name", name.text())


def set_time_limit(reading: Reading, field: Field) -> None:
    """Carries activeDeadlineSeconds."""
    if field:
        seconds = field.number(0)
        if seconds:
            reading.set(field.place, "time", slurm_time(seconds))


def set_nodes(reading: Reading, where: Place, nodes: int) -> None:
    """Sets the number of nodes, and one task on each."""
    reading.job.options["nodes"] = str(nodes)
    reading.job.places["nodes"] = where
    reading.job.options["ntasks-per-node"] = "1"
