"""The reasons for which Slurm keeps a node out of service: those that Headway gives, and slurmctld's own."""

from __future__ import annotations

import re

# Every reason that Headway gives to Slurm begins like this. Any other reason is a person's, and Headway leaves it as it
# is.
HEADWAY_REASON = "headway: "
INCIDENT_REASON = f"{HEADWAY_REASON}incident "  # the incident's end returns such a node, after tests
NO_MACHINE_REASON = f"{HEADWAY_REASON}no machine"  # reason of a slot without a machine
# Reasons of powered-down slots that Slurm may not power up now, each followed by details: no job has waited long enough for
# them, more machines would cost too much, or a machine could not be had ("... until UNIX-SECONDS: why").
HELD_REASON = f"{HEADWAY_REASON}held: "
HELD_FOR_QUEUE_TIME = f"{HELD_REASON}no job has waited"
HELD_FOR_PRICE = f"{HELD_REASON}over the limit of"
CLOSED_REASON = f"{HEADWAY_REASON}closed until"
_CLOSED = re.compile(rf"{CLOSED_REASON} (\d+): (.*)")
# Reason of a node whose machine is removed when its jobs have ended, followed by the earlier reason if the node was
# already out of service.
SCALE_IN_REASON = f"{HEADWAY_REASON}leaves"
# Reason of a node whose machine is created again from another image, followed by the error, if any.
ROLLOUT_REASON = f"{HEADWAY_REASON}rolls"
# Reason of a node whose division of GPUs changes, followed by the error, if any.
PARTS_REASON = f"{ROLLOUT_REASON} its GPUs"
# Reason of a node whose GPU driver is replaced, followed by the error, if any.
DRIVER_REASON = f"{ROLLOUT_REASON} its GPU driver"
# slurmctld's own reasons for nodes that it has lost.
SLURM_REASONS = ("Not responding", "Node unexpectedly rebooted", "not responding")
# Slurm's reasons for nodes that it drains by itself and never returns: one that still ends a job which was requeued and
# sent to it again, one on which a step's processes did not end within UnkillableStepTimeout, and one that turned a job away
# because its agent found it unfit.
SLURM_DRAINS = ("Duplicate jobid", "Kill task failed", "Prolog error")
# What `person_reason` says of a reboot. A server that finds such a reason continues with the reboot.
REBOOTS = "reboot, returned once its tests have passed"
_BY = "by "  # before the name of a person that Headway's own reasons begin with; no person's name has a space


def is_headway_reason(reason: str) -> bool:
    """Returns whether Headway or slurmctld gave the reason of a node that is out; any other reason is a person's."""
    return reason.startswith((HEADWAY_REASON, *SLURM_REASONS, *SLURM_DRAINS))


def is_held_slot(state: str, reason: str) -> bool:
    """Returns whether a slot is held: drained for such a reason. `state`: as sinfo or scontrol writes it. A power-down ends a
    drain, and the reason alone keeps no job away."""
    return reason.startswith(HELD_REASON) and "DRAIN" in state.upper()


def closed_until(reason: str) -> tuple[int, str] | None:
    """Returns (unix seconds until which a slot is closed, why); None for any other reason."""
    found = _CLOSED.match(reason)
    return (int(found[1]), found[2]) if found else None


def reason_before_scale_in(reason: str) -> str:
    """Returns the reason for which a node was out of service before its removal began; "" if it was in service."""
    return reason.removeprefix(SCALE_IN_REASON).removeprefix(": ")


def person_reason(person: str, why: str) -> str:
    """Returns the reason of a node that a person takes out of service: "olga: disk swap". It never counts as Headway's,
    also if the person's name is `headway`."""
    reason = f"{person}: {why}"
    return f"{_BY}{reason}" if reason.startswith(HEADWAY_REASON) else reason


def rebooting_person(reason: str) -> str:
    """Returns the person who reboots a node that is out of service for this reason; "" for any other reason."""
    end = f": {REBOOTS}"
    return reason.removesuffix(end).removeprefix(_BY) if reason.endswith(end) else ""
