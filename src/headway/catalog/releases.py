"""The only declaration of which node image has which Debian and Slurm, and of how those Slurm releases differ.

To support another Slurm release: add a row to SLURM_RELEASES and one to IMAGES; if its slurmrestd has a new REST
version, add an adapter in slurm/adapters; record its answers with tests/recorded_slurm/record.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.errors import Fault, InvalidSpec

# Slurm release -> number of earlier releases whose state files it can read, from the oldest supported release on.
# https://slurm.schedmd.com/upgrades.html
STATE_READ_BACK: Mapping[str, int] = {
    "22.05": 2, "23.02": 2, "23.11": 2, "24.05": 2, "24.11": 3, "25.05": 3, "25.11": 3, "26.05": 3,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SlurmRelease:
    """The configuration and interfaces of one Slurm release, as packaged by Debian."""

    name: str
    rest_version: str  # version of slurmrestd's API; slurm/adapters has an adapter for it
    slurmrestd_plugins: str  # slurmrestd's -s
    slurmrestd_data_parser: str  # slurmrestd's -d; "" for a release without this option
    slurmd_arguments: str  # arguments of slurmd in its systemd unit
    mpi_plugin: str  # value for srun --mpi
    # `scontrol reconfigure` starts a new process with the new file and keeps the old one if that fails, so that nearly
    # every key, also those of nodes, takes effect without a restart.
    reconfigures_everything: bool
    creates_output_folders: bool  # slurmstepd creates the folders of --output
    # Supports SuspendExcStates and KeepPowerSaveSettings; other releases refuse these keys
    has_suspend_exc_states: bool
    runs_oci_bundles: bool  # oci.conf as Headway writes it: `srun --container`
    preempt_signal_key: str  # key of slurm.conf that makes Slurm send a job's own --signal when it is preempted
    preempt_signal: str  # value for that key
    kill_wait_s: int
    limits_requests: bool  # slurmctld can limit the requests of each user (rl_enable)


_24_11 = SlurmRelease(
    name="24.11",
    rest_version="v0.0.42",
    slurmrestd_plugins="openapi/slurmctld,openapi/slurmdbd",
    slurmrestd_data_parser="data_parser/v0.0.42",
    slurmd_arguments="--systemd",
    mpi_plugin="pmix",
    reconfigures_everything=True,
    creates_output_folders=True,
    has_suspend_exc_states=True,
    runs_oci_bundles=True,
    preempt_signal_key="PreemptParameters",
    preempt_signal="send_user_signal",
    kill_wait_s=30,
    limits_requests=True,
)
# Debian 14's package lacks mpi/pmix. Otherwise nothing differs: a node with one release works under a controller with
# the other.
_26_05 = replace(_24_11, name="26.05", mpi_plugin="pmi2")
_22_05 = SlurmRelease(
    name="22.05",
    rest_version="v0.0.38",
    slurmrestd_plugins="openapi/v0.0.38,openapi/dbv0.0.38",
    slurmrestd_data_parser="",
    slurmd_arguments="-D -s",
    mpi_plugin="pmix",
    reconfigures_everything=False,
    creates_output_folders=False,
    has_suspend_exc_states=False,
    runs_oci_bundles=False,
    preempt_signal_key="SlurmctldParameters",
    preempt_signal="preempt_send_user_signal",
    kill_wait_s=5,
    limits_requests=False,
)
SLURM_RELEASES: Mapping[str, SlurmRelease] = {release.name: release for release in (_24_11, _26_05, _22_05)}


@dataclass(frozen=True, slots=True)
class Image:
    """A node image: a Debian release with the Slurm that it packages. Sizes and times are measured values."""

    name: str  # in the cluster file, and in /etc/os-release of the machine
    debian: str  # "Debian 13"
    suite: str  # Debian's code name
    slurm: SlurmRelease
    download_mb: int  # size of the packages for one build
    build_s: int
    released: bool = True  # Debian has released the suite: it has updates and security fixes
    has_jupyterlab: bool = True  # Debian packages what JupyterLab needs
    tested_on_owned_machines: bool = True
    runs_on_cgroup_v1: bool = True  # its systemd (before 258) can manage cgroup v1, on a host that has it

    @property
    def summary(self) -> str:
        """ "Debian 13, Slurm 24.11"."""
        return f"{self.debian}{'' if self.released else ' (testing)'}, Slurm {self.slurm.name}"


DEFAULT_IMAGE = "debian13"
IMAGES: Mapping[str, Image] = {
    image.name: image
    for image in (
        Image("debian13", "Debian 13", "trixie", _24_11, download_mb=505, build_s=150),
        Image(
            "debian14", "Debian 14", "forky", _26_05, download_mb=505, build_s=150,
            released=False, tested_on_owned_machines=False, runs_on_cgroup_v1=False,
        ),
        Image("debian12", "Debian 12", "bookworm", _22_05, download_mb=490, build_s=150, has_jupyterlab=False),
    )
}  # fmt: skip


def slurm_release(name: str) -> SlurmRelease:
    """Returns the release of a Slurm version: "24.11" or "24.11.5". Raises InvalidSpec if no image has it."""
    release = SLURM_RELEASES.get(release_of(name))
    if release is None:
        hint = f"use one of the node images {images_in_words()}"
        raise InvalidSpec([Fault("image", f"Slurm {name} is not supported", hint)])
    return release


def release_of(version: str) -> str:
    """Returns the release of a Slurm version: "24.11.5" gives "24.11"."""
    return ".".join(version.split(".")[:2])


def is_at_least(version: str, release: str) -> bool:
    """Returns whether a Slurm version belongs to this release or a later one."""
    return _number(version) >= _number(release)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release_of(version).split("."))


def images_in_words() -> str:
    """Returns the list of images for messages: "debian13 (Slurm 24.11), debian14 (26.05), debian12 (22.05)"."""
    first, *others = IMAGES.values()
    return ", ".join(
        [f"{first.name} (Slurm {first.slurm.name})", *(f"{image.name} ({image.slurm.name})" for image in others)]
    )
