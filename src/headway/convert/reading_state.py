"""What is known of a job while its file is read: its options so far, and the verdict on each directive and field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headway.convert.job_description import Job, Loss, Place
from headway.domain.access.credential_redaction import is_secret

_NAME = re.compile(r"[A-Za-z_]\w*")
_VARIABLE = re.compile(r"\$[\w{(]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
LOGIN_REMEDY = "log in with skopeo login --authfile ~/.config/containers/auth.json HOST"
SECRET_REMEDY = "store the value with headway secret set, and add #SBATCH --secret=NAME"  # noqa: S105 - a sentence
UNKNOWN_OPTION = ("headway convert does not know this option", "look for its counterpart in sbatch's manual page")


@dataclass(frozen=True, slots=True)
class Item:
    """One option of a directive, or one part of its value: `-l walltime=1:00:00` has the name "walltime"."""

    place: Place
    name: str
    value: str


Handler = Callable[["Reading", Item], None]


class Reading:
    """What is known of a job while its file is read. Each item that `read_items` gets is carried, or is in `losses`."""

    def __init__(self, source: str) -> None:
        self.job = Job(source)
        self.losses: list[Loss] = []
        self.carried: list[Place] = []
        self.interpreter = ""  # a directive's; "" if none names one

    def set(self, place: Place, option: str, value: str = "") -> None:
        """Carries a directive or field as an option of sbatch. An earlier value of the option is lost."""
        if _UNPRINTABLE.search(value):
            self.lose(place, "the value has a character that no option may have", "write the option by hand")
            return
        if _VARIABLE.search(value):
            self.lose(
                place, "sbatch replaces no variables in its lines", f"give it on the command line: sbatch --{option}"
            )
            return
        before = self.job.places.get(option)
        if before is not None and before != place:
            if self.job.options[option] == value:
                self.same(before, f"{place.where} sets the same")
            else:
                self.lose(before, f"{place.where} sets --{option} again, which counts")
        self.job.options[option] = value
        self.job.places[option] = place
        self.carried.append(place)

    def carry(self, place: Place) -> None:
        """Notes that a directive or field is in the job, though it is no option."""
        self.carried.append(place)

    def lose(self, place: Place, why: str, remedy: str = "") -> None:
        """Notes that a directive or field is not in the result."""
        self.losses.append(Loss(place.where, place.text, "lost", why, remedy))

    def change(self, place: Place, why: str, remedy: str = "") -> None:
        """Notes that a directive or field has another meaning in the result."""
        self.losses.append(Loss(place.where, place.text, "changed", why, remedy))

    def same(self, place: Place, why: str) -> None:
        """Notes that the target does this without being asked."""
        self.losses.append(Loss(place.where, place.text, "same", why))

    def set_variable(self, place: Place, name: str, value: str) -> None:
        """Carries a variable of the environment. A secret is lost, and its value is not shown."""
        if is_secret(name):
            self.lose(
                Place(place.where, name), "the name is that of a secret, so the value is not copied", SECRET_REMEDY
            )
        elif not _NAME.fullmatch(name) or "\0" in value:
            self.lose(Place(place.where, name), "no shell has a variable of this name", "rename it")
        else:
            self.job.environment[name] = value
            self.carried.append(place)


def read_items(
    reading: Reading,
    items: Iterable[Item],
    *,
    options: Mapping[str, str],
    same: Mapping[str, str],
    lost: Mapping[str, tuple[str, str]],
    handlers: Mapping[str, Handler],
) -> None:
    """Reads all items by tables. `options`: name -> option of sbatch with the same value. `same`: name -> why nothing needs
    to be written. `lost`: name -> why, and the next step. `handlers`: those that need more; a ValueError of a handler
    says why the value cannot be carried. All other items are lost as unknown."""
    for item in items:
        settled = len(reading.carried) + len(reading.losses)
        if item.name in options:
            reading.set(item.place, options[item.name], item.value)
        elif item.name in same:
            reading.same(item.place, same[item.name])
        elif item.name in lost:
            reading.lose(item.place, *lost[item.name])
        elif item.name in handlers:
            try:
                handlers[item.name](reading, item)
            except ValueError as error:
                reading.lose(item.place, str(error), "write the option of sbatch by hand")
        else:
            reading.lose(item.place, *UNKNOWN_OPTION)
        if len(reading.carried) + len(reading.losses) == settled:
            reading.lose(item.place, "its value says nothing")
