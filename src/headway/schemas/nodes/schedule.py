"""The schedule of a cluster: what runs where until when, what Slurm plans to start, and reservations."""

from __future__ import annotations

from typing import Literal

from headway.schemas.base import ResponseModel


class ScheduledNodeOut(ResponseModel):
    """A node with its leaf switch. `out`: why no job starts there now ("drained", "down", "starting"); "" if in service."""

    name: str
    leaf: str
    out: str = ""


class ScheduledJobOut(ResponseModel):
    """A running job until its time limit, or a pending one for which Slurm's scheduler has planned a start. Times are unix
    seconds; `end` is 0 without a time limit. `nodes` is empty where Slurm gives a start without nodes."""

    id: int
    label: str  # the number, or that of the array with the task
    name: str
    user: str
    state: Literal["running", "planned"]
    nodes: list[str]
    node_count: int
    gpus: int
    start: int
    end: int = 0


class ScheduledReservationOut(ResponseModel):
    """A reservation in Slurm, the next occurrence of a repeating one. `end` is 0 without end. `in_file`: it comes from the
    cluster file."""

    name: str
    kind: Literal["maintenance", "reservation", "spares", "flaky", "test"]
    nodes: list[str]
    users: list[str]
    start: int
    end: int = 0
    in_file: bool = False


class ReservationNotInSlurmOut(ResponseModel):
    """A reservation of the cluster file that Slurm does not have: an apply has not made it yet, Slurm has refused it, or it
    is over. `text`: when it is, in the head's time zone, and where; `over`: it has certainly ended."""

    name: str
    text: str
    over: bool = False


class ScheduleOut(ResponseModel):
    """The schedule as Slurm has it. `unplanned`: pending jobs for which Slurm has planned no start."""

    as_of: float | None = None  # unix seconds; None: never read
    nodes: list[ScheduledNodeOut]  # by leaf switch
    jobs: list[ScheduledJobOut]  # running ones first, then planned ones in the order of their starts
    reservations: list[ScheduledReservationOut]
    not_in_slurm: list[ReservationNotInSlurmOut] = []
    unplanned: int = 0
