"""MIG on simulated GPUs: a file with the instances, which the simulated nvidia-smi reads, and device files that Slurm can
allocate. Like those of a real GPU, they are gone after a boot."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat

from agent.gpu.mig import Instance, cap_minors, read_instances

STATE = "/run/headway/simulated-mig.json"
DEVICES = "/dev"
MAJOR, FIRST_MINOR = 195, 1000  # numbers that no GPU has; there is no driver, so opening one fails with ENXIO


class SimulatedMig:
    """The driver of `count` simulated GPUs."""

    def __init__(self, count: int, *, state: str = STATE, devices: str = DEVICES) -> None:
        self._count, self._path, self._devices = count, state, devices

    def gpus(self) -> list[int]:
        """Returns all GPUs."""
        return list(range(self._count))

    def enabled(self, gpu: int) -> bool:
        """Returns whether the GPU is in MIG mode."""
        return gpu in self._state()

    def set_mode(self, gpu: int, *, on: bool) -> None:
        """Switches the MIG mode."""
        state = self._state()
        if on:
            state.setdefault(gpu, [])
        else:
            state.pop(gpu, None)
        self._write(state)

    def retry_mode(self, gpu: int) -> None:
        """Does nothing: a simulated GPU switches its MIG mode at once."""

    def instances(self, gpu: int) -> list[Instance]:
        """Returns the instances whose device files are there."""
        return [one for one in self._state().get(gpu, []) if all(map(os.path.exists, self._files(gpu, one)))]

    def create(self, gpu: int, wanted: Instance) -> None:
        """Creates the instance, which exists only with its device files."""
        self.make_files(gpu, wanted)
        state = self._state()
        others = [one for one in state.get(gpu, []) if one.place != wanted.place]
        self._write({**state, gpu: sorted([*others, wanted])})

    def make_files(self, gpu: int, instance: Instance) -> None:
        """Makes the device files that are missing."""
        os.makedirs(f"{self._devices}/nvidia-caps", mode=0o755, exist_ok=True)
        for path, minor in zip(self._files(gpu, instance), cap_minors(gpu, instance.number), strict=True):
            if not os.path.exists(path):
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(MAJOR, FIRST_MINOR + minor))
                os.chmod(path, 0o666)

    def destroy(self, gpu: int, instance: Instance) -> None:
        """Removes the instance and its device files."""
        state = self._state()
        self._write({**state, gpu: [one for one in state.get(gpu, []) if one.place != instance.place]})
        for path in self._files(gpu, instance):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _files(self, gpu: int, instance: Instance) -> list[str]:
        return [f"{self._devices}/nvidia-caps/nvidia-cap{minor}" for minor in cap_minors(gpu, instance.number)]

    def _state(self) -> dict[int, list[Instance]]:
        try:
            with open(self._path) as file:
                return {int(gpu): list(read_instances(rows)) for gpu, rows in json.load(file).items()}
        except (FileNotFoundError, ValueError):
            return {}

    def _write(self, state: dict[int, list[Instance]]) -> None:
        rows = {gpu: [dataclasses.asdict(one) for one in instances] for gpu, instances in state.items()}
        with open(f"{self._path}.new", "w") as file:
            json.dump(rows, file)
            os.fchmod(file.fileno(), 0o644)
        os.replace(f"{self._path}.new", self._path)
