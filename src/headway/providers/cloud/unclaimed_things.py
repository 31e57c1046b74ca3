"""Whether something at a cloud belongs to no machine of its cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.domain.machines.rented import InstanceState, RentedThing
from headway.domain.slurm.hostlist import expand
from headway.providers.cloud.rental_records import RentalTry

_MOST_TOGETHER = 10_000  # machines of one launch that a tag may name


def is_unclaimed(thing: RentedThing, tries: Mapping[str, RentalTry]) -> bool:
    """Returns whether no try claims the thing, and nothing that is claimed uses it."""
    if any(made.instance == thing.id and not made.ended for made in tries.values()):
        return False  # whatever its tags say: a person may have changed them
    for name in _machines_of(thing):
        made = tries.get(name)
        if made is not None and not made.ended and made.number == thing.number:
            # A cloud without tokens may have carried out one launch twice.
            return thing.kind == "instance" and bool(made.instance) and not _is_going(thing)
    return not _is_going(thing)


def _is_going(thing: RentedThing) -> bool:
    return thing.state in (InstanceState.ENDING, InstanceState.ENDED, "in-use")


def _machines_of(thing: RentedThing) -> Sequence[str]:
    """Returns the machines that the thing may belong to: a disk of a launch of several may be that of any."""
    try:
        return expand(thing.machine, most=_MOST_TOGETHER)
    except ValueError:  # a person has changed the tag
        return ()
