"""What differs between the Slurm versions that are really brought up: 26.05 (Debian 14), 24.11 (Debian 13), 22.05 (Debian 12)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.errors import Fault, InvalidSpec


@dataclass(frozen=True, slots=True)
class Version:
    """`reconfigure_all`: `scontrol reconfigure` starts a new process from the new file and keeps the old one when that
    fails, so nearly every key, nodes included, needs no restart."""

    name: str
    reconfigure_all: bool
    makes_output_folders: bool  # slurmstepd makes the folders of --output itself
    preempt_signal_key: str  # where "send the job's own --signal when it is preempted" is said
    preempt_signal: str
    rest_plugins: str  # slurmrestd's -s
    rest_parsers: str  # slurmrestd's -d, "" where there is no such option
    kill_wait_s: int
    daemon_arguments: str  # how systemd runs slurmd
    mpi: str  # how srun starts MPI programs
    keeps_states_awake: bool  # SuspendExcStates, KeepPowerSaveSettings; a Slurm without them refuses them


VERSIONS = {
    "24.11": Version(
        name="24.11",
        reconfigure_all=True,
        makes_output_folders=True,
        preempt_signal_key="PreemptParameters",
        preempt_signal="send_user_signal",
        rest_plugins="openapi/slurmctld,openapi/slurmdbd",
        rest_parsers="data_parser/v0.0.42",
        kill_wait_s=30,
        daemon_arguments="--systemd",
        mpi="pmix",
        keeps_states_awake=True,
    ),
    "22.05": Version(
        name="22.05",
        reconfigure_all=False,
        makes_output_folders=False,
        preempt_signal_key="SlurmctldParameters",
        preempt_signal="preempt_send_user_signal",
        rest_plugins="openapi/v0.0.38,openapi/dbv0.0.38",
        rest_parsers="",
        kill_wait_s=5,
        daemon_arguments="-D -s",
        mpi="pmix",
        keeps_states_awake=False,
    ),
}
# All else is the same: a node of the one works under a controller of the other. Debian 14's package has no mpi/pmix so far.
VERSIONS["26.05"] = replace(VERSIONS["24.11"], name="26.05", mpi="pmi2")


def version(name: str) -> Version:
    """Raises InvalidSpec for a version that was never really run."""
    if name not in VERSIONS:
        raise InvalidSpec([Fault("image", f"Slurm {name} is not supported", f"images carry {' or '.join(VERSIONS)}")])
    return VERSIONS[name]
