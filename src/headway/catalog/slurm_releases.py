"""The only declaration of how the supported Slurm releases differ.

To support another Slurm release: add a row here, and one to IMAGES in node_images.py; if its slurmrestd has a new REST
version, add an adapter in slurm/adapters; record its answers with tests/recorded_slurm/record.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    delays_requeue_by_kill_wait: bool  # the jobs of a node that is set down wait KillWait before they are requeued
    limits_requests: bool  # slurmctld can limit the requests of each user (rl_enable)
    scancel_needs_cron: bool  # scancel leaves jobs of a scrontab alone without its option --cron


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
    delays_requeue_by_kill_wait=False,
    limits_requests=True,
    scancel_needs_cron=True,
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
    delays_requeue_by_kill_wait=True,
    limits_requests=False,
    scancel_needs_cron=False,
)
SLURM_RELEASES: Mapping[str, SlurmRelease] = {release.name: release for release in (_24_11, _26_05, _22_05)}


def release_of(version: str) -> str:
    """Returns the release of a Slurm version: "24.11.5" gives "24.11"."""
    return ".".join(version.split(".")[:2])


def is_at_least(version: str, release: str) -> bool:
    """Returns whether a Slurm version belongs to this release or a later one."""
    return _number(version) >= _number(release)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release_of(version).split("."))
