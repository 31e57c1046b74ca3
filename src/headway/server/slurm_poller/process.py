"""The poller of one cluster, a separate process (`python -m headway.server.slurm_poller.process`), so that the server
never blocks on reading ten thousand jobs. It reads Slurm on request, keeps what it read, and reports what has changed.

The first line of standard input names the head and its keys, as JSON; each further line requests a reading. The
process ends when standard input is closed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator

from headway.domain.machines.machine import Jump, Machine, MachineState
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState, Reservation
from headway.errors import HeadwayError
from headway.server.slurm_poller.frames import (
    BEGIN,
    END,
    GONE,
    JOB,
    MANY,
    NODE,
    NODES,
    RESERVATIONS,
    differs,
    frame,
    news_of,
    packed,
    some_nodes,
)
from headway.services.jobs.job_to_schema import job_row
from headway.slurm.reader import SlurmReader
from headway.transport.ssh import Connections

FEW = 256  # up to this many changed jobs are sent one by one, each with its row
AT_ONCE = 64  # jobs in one MANY frame


class SnapshotChanges:
    """The state that the server knows. Makes the frames that update it."""

    def __init__(self) -> None:
        self._jobs: dict[int, JobState] = {}
        self._nodes: tuple[NodeState, ...] = ()
        self._reservations: tuple[Reservation, ...] = ()

    def of(
        self, nodes: tuple[NodeState, ...], jobs: tuple[JobState, ...], reservations: tuple[Reservation, ...] = ()
    ) -> Iterator[bytes]:
        """Yields the frames that update the server to this state."""
        if nodes != self._nodes:
            some = some_nodes(self._nodes, nodes)
            if some is None:
                yield frame(NODES, json.dumps([packed(node) for node in nodes]).encode())
            else:
                yield frame(NODE, some)
            self._nodes = nodes
        if reservations != self._reservations:
            self._reservations = reservations
            yield frame(RESERVATIONS, json.dumps([packed(reservation) for reservation in reservations]).encode())
        now = {job.id: job for job in jobs}
        news = []
        for number, job in now.items():
            before = self._jobs.get(number)
            if before is not job and before != job:
                news.append((before, job))
        yield from _together(news) if len(news) > FEW else (_alone(job) for _, job in news)
        gone = sorted(self._jobs.keys() - now.keys())
        if gone:
            yield frame(GONE, json.dumps(gone).encode())
        self._jobs = now


def _alone(job: JobState) -> bytes:
    return frame(JOB, json.dumps(packed(job)).encode(), job_row(job))


def _together(news: Iterable[tuple[JobState | None, JobState]]) -> Iterator[bytes]:
    """Yields frames for many changed jobs, grouped by the fields that changed. Once a minute all priorities change:
    sending only these, without rows, costs the server a tenth as much; of ten thousand rows few are ever shown."""
    alike: dict[tuple[int, ...], list[JobState]] = defaultdict(list)
    for before, job in news:
        if before is None:
            yield _alone(job)
        else:
            alike[differs(before, job)].append(job)
    for places, jobs in alike.items():
        for start in range(0, len(jobs), AT_ONCE):
            yield frame(MANY, news_of(places, jobs[start : start + AT_ONCE]))


async def reading_frames(reader: SlurmReader, changes: SnapshotChanges) -> list[bytes]:
    """Returns the frames of one reading."""
    try:
        nodes, jobs, reservations = await asyncio.gather(reader.nodes(), reader.jobs(), reader.reservations())
    except HeadwayError as error:
        fields = {"kind": error.kind, "message": error.message, "hint": error.hint}
        return [frame(END, json.dumps(fields).encode())]
    return [*changes.of(nodes, jobs, reservations), frame(END)]


async def main() -> None:
    """Answers requests on standard input until it is closed."""
    stdin = asyncio.StreamReader(limit=1024 * 1024)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin.buffer)
    settings = json.loads(await stdin.readline())
    told_head = settings["head"]
    jump = told_head["jump"] and Jump(**told_head["jump"])
    head = Machine(**{**told_head, "state": MachineState(told_head["state"]), "jump": jump})
    changes = SnapshotChanges()
    async with Connections(settings["bootstrap_key"]) as connections:
        reader = SlurmReader(connections, head, bytes.fromhex(settings["jwt_key"]), settings["version"])
        _write([frame(BEGIN)])
        while await stdin.readline():
            _write(await reading_frames(reader, changes))
        await reader.close()


def _write(frames: list[bytes]) -> None:
    """Writes all frames, however slowly the server reads them."""
    out = sys.stdout.buffer
    for piece in frames:
        out.write(piece)
    out.flush()


if __name__ == "__main__":
    os.nice(2)  # requests that people wait for have priority
    asyncio.run(main())
