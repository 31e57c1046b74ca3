"""MIG instances of this node's GPUs: makes them as the configuration says. `MigDriver` is the interface to the driver: NVML
(nvml_mig.py) or the simulation (simulated_mig.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, order=True)
class Instance:
    """A GPU instance with its only compute instance. `number`: the driver's number of the GPU instance, from which the
    device files in gres.conf follow."""

    start: int  # its first memory slice
    size: int  # number of memory slices
    compute: int  # number of compute slices
    number: int
    profile: str = ""
    memory_mib: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        """Place and size in the GPU, by which two instances are compared."""
        return self.start, self.size, self.compute


class MigError(Exception):
    """The instances can't be made; the text says what to do."""


class MigDriver(Protocol):
    """What the driver does with MIG. GPUs are named by N of /dev/nvidiaN. The functions raise MigError or OSError."""

    def gpus(self) -> list[int]:
        """Returns all GPUs."""
        ...

    def enabled(self, gpu: int) -> bool:
        """Returns whether the GPU is in MIG mode."""
        ...

    def set_mode(self, gpu: int, *, on: bool) -> None:
        """Switches the MIG mode. Raises MigError if the GPU has to be reset first."""
        ...

    def retry_mode(self, gpu: int) -> None:
        """Switches the MIG mode as it was last asked for, if that is still pending."""
        ...

    def instances(self, gpu: int) -> list[Instance]:
        """Returns the GPU instances that have a compute instance, and those that have none."""
        ...

    def create(self, gpu: int, wanted: Instance) -> None:
        """Creates a GPU instance at its place with one compute instance."""
        ...

    def make_files(self, gpu: int, instance: Instance) -> None:
        """Makes the device files of an instance that are missing. Raises MigError if gres.conf names others."""
        ...

    def destroy(self, gpu: int, instance: Instance) -> None:
        """Destroys a GPU instance and what is in it. Raises MigError while a process uses it."""
        ...


def read_instances(rows: Iterable[dict[str, Any]]) -> tuple[Instance, ...]:
    """Returns the instances of a GPU as the configuration lists them."""
    names = Instance.__dataclass_fields__
    return tuple(Instance(**{name: value for name, value in row.items() if name in names}) for row in rows)


def make_instances(driver: MigDriver, wanted: tuple[Instance, ...], *, in_use: bool = False) -> Iterator[str]:
    """Makes the instances of each GPU as wanted, () = no MIG mode. Yields what it does; nothing if all GPUs are so
    already. `in_use`: jobs are on the node, so nothing may be changed. Raises MigError or OSError; it may be run again
    then."""
    for gpu in driver.gpus():
        if in_use and (fault := fault_of(driver, gpu, wanted)):
            raise MigError(f"{fault}; jobs are on the node: drain it first")
        if not in_use:
            driver.retry_mode(gpu)
        yield from _of_gpu(driver, gpu, wanted)


def _of_gpu(driver: MigDriver, gpu: int, wanted: tuple[Instance, ...]) -> Iterator[str]:
    present = driver.instances(gpu) if driver.enabled(gpu) else []
    places = {instance.place for instance in wanted}
    for instance in present:
        if instance.place not in places:
            driver.destroy(gpu, instance)
            yield f"GPU {gpu}: instance {instance.number} is removed"
    if driver.enabled(gpu) != bool(wanted):
        driver.set_mode(gpu, on=bool(wanted))
        yield f"GPU {gpu}: MIG mode is {'on' if wanted else 'off'}"
    have = {instance.place for instance in present}
    for instance in wanted:
        if instance.place not in have:
            driver.create(gpu, instance)
            yield f"GPU {gpu}: instance {instance.number} is made, {instance.profile}"
    for instance in driver.instances(gpu) if wanted else ():
        driver.make_files(gpu, instance)
    if fault := fault_of(driver, gpu, wanted):
        raise MigError(fault)


def fault_of(driver: MigDriver, gpu: int, wanted: tuple[Instance, ...]) -> str:
    """Returns how a GPU differs from what is wanted, "" if it doesn't."""
    if driver.enabled(gpu) != bool(wanted):
        return f"GPU {gpu} is {'not ' if wanted else ''}in MIG mode"
    return wrong_instances(gpu, driver.instances(gpu), wanted) if wanted else ""


def wrong_instances(gpu: int, present: Iterable[Instance], wanted: Iterable[Instance]) -> str:
    """Returns how the instances of a GPU differ from those wanted, "" if they don't. Their numbers count too, because
    gres.conf names device files by them."""
    have = {instance.place: instance.number for instance in present}
    for instance in wanted:
        number = have.pop(instance.place, None)
        if number is None:
            return f"GPU {gpu} has no MIG instance {instance.profile} at memory slice {instance.start}"
        if number != instance.number:
            return (
                f"GPU {gpu}: MIG instance {instance.profile} has number {number}, gres.conf expects {instance.number}"
            )
    return f"GPU {gpu} has {len(have)} MIG instances that the cluster file does not name" if have else ""


def gpu_of_each(gpus: Iterable[int], wanted: Iterable[Instance]) -> list[int]:
    """Returns the GPU of each instance of the node in the order in which Slurm counts them: by profile as in slurm.conf,
    the largest first, then by GPU."""
    names = list(gpus)
    by_size = sorted(wanted, key=lambda one: (-one.compute, -one.size))
    profiles = dict.fromkeys(one.profile for one in by_size)
    return [gpu for profile in profiles for gpu in names for one in by_size if one.profile == profile]


def cap_minors(gpu: int, number: int) -> tuple[int, int]:
    """Returns the minor numbers of the device files of a GPU instance and of its compute instance 0, as in
    /proc/driver/nvidia-caps/mig-minors."""
    first = 3 + 15 * 9 * gpu + 9 * number
    return first, first + 1
