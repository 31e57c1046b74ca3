"""Writes the pods that JobSet and RayJob have, from options of sbatch."""

from __future__ import annotations

import re
import shlex
from typing import Any

from headway.convert.job_description import Job, Loss, Place, Used
from headway.convert.quantities import memory_mib, slurm_seconds
from headway.errors import Fault, InvalidSpec

_GRES_GPU = re.compile(r"(?:gres:|gres/)?gpu(?:[:/][A-Za-z]\w*)?(?::|=)?(\d+)?")
_NO_COUNTERPART = "Kubernetes has no counterpart"
_LOGS = ("the log is the pods' output", "kubectl logs")
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_OF_QUEUE = ("partition", "account", "qos", "wckey", "reservation")
_QUEUE = ("partitions, accounts and QOS are queues of Kueue", "add the label kueue.x-k8s.io/queue-name")
REASONS = {
    "output": _LOGS,
    "error": _LOGS,
    "open-mode": _LOGS,
    "input": ("pods have no standard input", ""),
    "partition": _QUEUE,
    "account": _QUEUE,
    "qos": _QUEUE,
    "wckey": _QUEUE,
    "reservation": _QUEUE,
    "constraint": ("features of nodes are labels", "add a nodeSelector"),
    "prefer": ("features of nodes are labels", "add an affinity"),
    "nodelist": ("nodes have other names", "add a nodeSelector"),
    "exclude": ("nodes have other names", "add an affinity"),
    "exclusive": ("a pod shares its node", "request all CPUs and GPUs of a node, or add an affinity"),
    "dependency": ("objects do not wait for each other", "see Argo Workflows, or create the object later"),
    "begin": ("an object starts when it is created", "create it later, or see CronJob"),
    "mail-type": ("Kubernetes sends no mail", "see alerts of your monitoring"),
    "mail-user": ("Kubernetes sends no mail", "see alerts of your monitoring"),
    "signal": ("a pod gets SIGTERM at its end", "see terminationGracePeriodSeconds"),
    "licenses": (_NO_COUNTERPART, "see quotas of Kueue"),
    "nice": ("priorities are classes", "see priorityClassName"),
    "priority": ("priorities are classes", "see priorityClassName"),
    "secret": ("secrets of jobs are not in Kubernetes", "make a Secret, and name it in env by secretKeyRef"),
    "switches": ("places follow labels of nodes", "see podAffinity, and topology of Kueue"),
    "comment": (_NO_COUNTERPART, "add an annotation"),
    "chdir": ("pods have the image's files", "see workingDir"),
    "tmp": (_NO_COUNTERPART, "request ephemeral-storage"),
    "no-requeue": ("a failed pod ends the object", ""),
}
SAME = frozenset({"no-requeue", "nodes", "overcommit", "verbose", "quiet", "parsable"})


def dns_name(job: Job, losses: list[Loss]) -> str:
    """Returns the job's name as Kubernetes allows it: small letters, digits and hyphens."""
    name = job.options.get("job-name", "job")
    found = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:40].strip("-") or "job"
    if not found[0].isalpha():
        found = f"job-{found}"
    place = job.places.get("job-name")
    if place is not None and found != name:
        losses.append(
            Loss(place.where, place.text, "changed", f"names have small letters, digits and hyphens: {found}")
        )
    return found


def metadata(job: Job, name: str) -> dict[str, Any]:
    """Returns the metadata of an object, with the label of Kueue if the job has a queue there."""
    return {"name": name, "labels": {QUEUE_LABEL: job.queue}} if job.queue else {"name": name}


def require_image(job: Job) -> str:
    """Returns the image. Raises InvalidSpec if the job has none."""
    if not job.image:
        fault = Fault("", "names no container image, and pods need one", "name one: --image IMAGE")
        raise InvalidSpec([fault], "the file")
    return job.image


def node_count(job: Job) -> int:
    """Returns the number of nodes: of a range the least."""
    least = job.options.get("nodes", "1").partition("-")[0]
    return int(least) if least.isdecimal() and int(least) > 0 else 1


class PodWriter:
    """Makes pods of a job, and notes which options are in them."""

    def __init__(self, job: Job, losses: list[Loss]) -> None:
        self.job, self.losses = job, losses
        self.written: set[str] = {"job-name", "nodes"}

    def pod(self, name: str, command: list[str]) -> dict[str, Any]:
        """Returns the spec of a pod that runs a command."""
        job = self.job
        container: dict[str, Any] = {"name": name, "image": require_image(job)}
        if command:
            container["command"] = command
        if job.workdir or "chdir" in job.options:
            container["workingDir"] = job.workdir or job.options["chdir"]
            self.written.add("chdir")
        if job.environment:
            container["env"] = [{"name": key, "value": escape_dollars(value)} for key, value in job.environment.items()]
        limits, requested = self._amounts(), self.requested()
        requests = dict(limits)
        if requested is not None:
            requests |= {"cpu": str(requested.cpus), "memory": _quantity(requested.memory_mib)}
        if requests:
            container["resources"] = {"requests": requests} | ({"limits": limits} if limits else {})
        if job.mounts:
            container["volumeMounts"] = [
                {"name": f"folder-{number}", "mountPath": mount.target}
                | ({"readOnly": True} if mount.read_only else {})
                for number, mount in enumerate(job.mounts.values())
            ]
        return {"containers": [container], **self.volumes()}

    def volumes(self) -> dict[str, Any]:
        """Returns the field `volumes` of a pod, {} if the job has no mounts."""
        found = [self._volume(number, mount.source) for number, mount in enumerate(self.job.mounts.values())]
        return {"volumes": found} if found else {}

    def _volume(self, number: int, source: str) -> dict[str, Any]:
        if source == "tmpfs":
            return {"name": f"folder-{number}", "emptyDir": {"medium": "Memory"}}
        return {"name": f"folder-{number}", "hostPath": {"path": source}}

    def _amounts(self) -> dict[str, str]:
        job, tasks = self.job, self.tasks_per_node()
        amounts: dict[str, str] = {}
        cpus = job.number("cpus-per-task")
        if cpus or tasks > 1:
            amounts["cpu"] = str((cpus or 1) * tasks)
            self.written |= {"cpus-per-task"}
        gpus = self._gpus(tasks)
        if gpus:
            amounts["nvidia.com/gpu"] = str(gpus)
        memory = self._memory(tasks * (cpus or 1), gpus)
        if memory:
            amounts["memory"] = _quantity(memory)
        return amounts

    def requested(self) -> Used | None:
        """Returns what a pod requests of processors and memory: what the job has used, at most its limits. None if its use is
        not known."""
        used, limits = self.job.used, self._amounts()
        if used is None:
            return None
        limit = memory_mib(limits.get("memory", f"{used.memory_mib}Mi").removesuffix("i"), default_unit="M")
        return Used(min(used.cpus, int(limits.get("cpu", used.cpus))), min(used.memory_mib, limit))

    def tasks_per_node(self) -> int:
        """Returns the tasks of each node."""
        per_node, total = self.job.number("ntasks-per-node"), self.job.number("ntasks")
        self.written |= {"ntasks-per-node", "ntasks"}
        return per_node or (-(-total // node_count(self.job)) if total else 1) or 1

    def _gpus(self, tasks: int) -> int:
        options, nodes = self.job.options, node_count(self.job)
        for name, count in (
            ("gpus-per-node", 1.0),
            ("gres", 1.0),
            ("gpus", 1 / nodes),
            ("gpus-per-task", float(tasks)),
        ):
            text = options.get(name, "")
            if name == "gres":
                match = _GRES_GPU.fullmatch(text)
                number = int(match[1] or 1) if match else 0
            else:
                last = text.rpartition(":")[2]
                number = int(last) if last.isdecimal() else 0
            if number:
                self.written.add(name)
                kind = re.search(r"[A-Za-z]\w*(?=:\d)", text.removeprefix("gpu:"))
                if kind and kind[0] != "gpu":
                    self._change(
                        name, f"any GPU is taken, not only {kind[0]}", "add a nodeSelector: nvidia.com/gpu.product"
                    )
                return max(1, int(number * count))
        return 0

    def _memory(self, cpus: int, gpus: int) -> int:
        for name, count in (("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", gpus)):
            value = self.job.options.get(name, "")
            try:
                found = memory_mib(value, default_unit="M") * count if value and value != "0" else 0
            except ValueError:
                continue
            if found:
                self.written.add(name)
                return found
            if value == "0":
                self.written.add(name)
                self._lose(
                    name,
                    "a pod does not get all memory of a node by itself",
                    "request an amount: resources.requests.memory",
                )
        return 0

    def time_limit_s(self) -> int | None:
        """Returns the seconds that the job may run."""
        value = self.job.options.get("time")
        if value is None:
            return None
        self.written.add("time")
        try:
            found = slurm_seconds(value)
        except ValueError:
            self._lose("time", "is no time limit", "set activeDeadlineSeconds")
            return None
        if found is None:
            self._change("time", "the object has no time limit", "")
        return found or None

    def finish(self) -> None:
        """Notes the options that are in no pod."""
        for name in self.job.options:
            if name in self.written or name not in self.job.places:
                continue
            place = self.job.places[name]
            if name in _OF_QUEUE and self.job.queue:
                self._change(name, f"the queue of Kueue is {self.job.queue}", "")
            elif name in SAME:
                self.losses.append(
                    Loss(place.where, place.text, "same", REASONS.get(name, ("Kubernetes does this", ""))[0])
                )
            else:
                self._lose(name, *REASONS.get(name, (_NO_COUNTERPART, "")))

    def _lose(self, name: str, why: str, remedy: str) -> None:
        place = self.job.places.get(name, Place("", f"--{name}"))
        self.losses.append(Loss(place.where, place.text, "lost", why, remedy))

    def _change(self, name: str, why: str, remedy: str) -> None:
        place = self.job.places.get(name, Place("", f"--{name}"))
        self.losses.append(Loss(place.where, place.text, "changed", why, remedy))


def _quantity(mib: int) -> str:
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"


def shell_command(interpreter: str, text: str) -> list[str]:
    """Returns the command of a container that runs a script's text."""
    words = shlex.split(interpreter)
    words = words[1:] if words[:1] in (["/usr/bin/env"], ["/bin/env"]) else words
    return [*words, "-c", escape_dollars(text)]


def escape_dollars(text: str) -> str:
    """Returns a word of a command or the value of a variable as a pod must have it: Kubernetes reads $$ as $, and $(NAME) as a
    variable."""
    return re.sub(r"\$(?=[$(])|(?<=\$)\$", "$$", text)
