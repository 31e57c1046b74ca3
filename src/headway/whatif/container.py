"""Runs one replay in a container of the node image, and removes the container whatever happens."""

from __future__ import annotations

import io
import os
import secrets
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.domain.cluster import Cluster
from headway.images.build import ensure_image
from headway.images.podman import Podman
from headway.paths import node_dir, state_dir
from headway.transport.process import run_process
from headway.whatif.outcome import Outcome, read_outcome
from headway.whatif.slurm_files import IMAGE, ReplayFiles, replay_files
from headway.whatif.trace import Trace, TraceJob

LIMIT_S = 3600.0
MEMORY = "6g"  # of one container, with its file system in memory: programs of a server's machine need the rest
_SOURCES = ("clock.c", "nodes.c", "replay.c", "replay.h", "run.sh")
_LEAD_S = 60  # from the start of the virtual clock's free run to the first submission
_UNPACK = "mkdir -p /run/replay && tar x -C /run/replay && exec bash /run/replay/run.sh"
# Starts slurmctld with a file system in memory: it writes its state every few seconds of virtual time.
_OPTIONS = ("--network", "none", "--cap-add", "NET_ADMIN", "--tmpfs", "/run:size=4g", "--memory", MEMORY, "--hostname")


@dataclass(frozen=True)
class Progress:
    """How far a replay is: seconds of virtual time since the first submission, jobs that started and ended."""

    virtual_s: float
    started: int
    ended: int


class OnProgress(Protocol):
    """Is called every ten virtual minutes."""

    def __call__(self, progress: Progress) -> None: ...


async def run_replay(cluster: Cluster, trace: Trace, on_progress: OnProgress, *, container: str = "") -> Outcome:
    """Replays the jobs on the cluster and returns when each ran. The image is built if it is missing. `container`: the end of
    the container's name; one that an earlier, killed run left under this name is removed.

    Raises Refused for a cluster that can't be replayed, and CommandFailed if podman or a program in the container fails."""
    files = replay_files(cluster)
    image = await ensure_image(IMAGE, state_dir=state_dir())
    podman = Podman(state_dir())
    limits = await podman.limits(image.tag)
    name = f"headway-whatif-{container or f'{os.getpid()}-{secrets.token_hex(4)}'}"
    named = {f"j{number}": job for number, job in enumerate(trace.jobs)}
    environment = {"HEAD": files.head, "ABSENT": files.absent, "START": str(int(trace.first) - _LEAD_S)}
    argv = [
        *(*podman.base(), "run", "--rm", "--interactive", "--name", name, "--label", "headway=1"),
        *("--timeout", str(int(LIMIT_S))),  # also if this process is killed before it removes the container
        *(*_OPTIONS, files.head, *limits),
        *(word for key, value in environment.items() for word in ("--env", f"{key}={value}")),
        *(image.tag, "sh", "-c", _UNPACK),
    ]
    lines: list[str] = []
    remove = [*podman.base(), "rm", "--force", "--ignore", "--time", "0", name]
    await run_process(remove, timeout_s=60, check=False)
    try:
        await run_process(
            argv,
            timeout_s=LIMIT_S,
            input=_archive(files, named),
            on_line=_reader(lines, trace, on_progress),
            check=True,
        )
    except Exception:
        if any(line.startswith("failed\t") for line in lines):
            return read_outcome(named, lines)
        raise
    finally:
        await run_process(remove, timeout_s=60, check=False)
    return read_outcome(named, lines)


def _reader(lines: list[str], trace: Trace, on_progress: OnProgress) -> Callable[[str], None]:
    def read(line: str) -> None:
        lines.append(line)
        words = line.split("\t")
        if words[0] == "time":
            on_progress(Progress(max(0.0, float(words[1]) - trace.first), int(words[2]), int(words[3])))

    return read


def _archive(files: ReplayFiles, named: dict[str, TraceJob]) -> bytes:
    texts = {name: (node_dir() / "whatif" / name).read_text() for name in _SOURCES}
    texts |= files.files
    texts["jobs"] = job_lines(named, files.uids)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in texts.items():
            entry = tarfile.TarInfo(name)
            content = text.encode()
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def job_lines(named: dict[str, TraceJob], uids: dict[str, int]) -> str:
    """Returns the file that node/whatif/replay.c reads: 16 fields a line, separated by tabs, "-" for none."""
    rows: list[Sequence[object]] = []
    for name, job in named.items():
        gpus = f"gres/gpu:{job.gpus}" if job.gpus else ""
        uid = uids[job.user]
        rows.append(
            (name, int(job.submit), uid, uid, job.account, job.partition, job.qos, job.limit_min, job.nodes, job.cpus,
             job.memory_mib, gpus, job.features, int(job.begin), job.run_s, int(job.cancelled_at))
        )  # fmt: skip
    return "".join("\t".join(_word(value) for value in row) + "\n" for row in rows)


def _word(value: object) -> str:
    """Returns a field: nothing of a trace ends a field or a line."""
    return " ".join(str(value).split()) or "-"
