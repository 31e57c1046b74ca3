"""A Slurm of one node on this machine, from its installed programs: munged, slurmctld and slurmd with their own key, ports and
folder. Nothing of the machine's own Slurm is read or changed, and all of it is gone at the end."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from gpu_proof.job_steps import end_steps

DAEMONS = ("munged", "slurmctld", "slurmd")
PROGRAMS = (*DAEMONS, "sinfo", "srun", "sbatch", "scancel", "scontrol", "squeue")
PACKAGES = ("munge", "slurmctld", "slurmd", "slurm-client")
_START_S = 60.0  # seconds for the start of all daemons
_END_S = 20.0  # seconds for the end of jobs
_LIMIT_S = 120.0  # seconds for one command of Slurm
_POLL_S = 0.2
_CAN_DISABLE_CGROUPS = "23.02"
_LOOPBACK = "127.0.0.1"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # a user's PATH may lack the daemons' folders


class SlurmFailed(Exception):
    """A part of Slurm did not do what it should; the message says what it wrote."""


def missing_programs() -> list[str]:
    """Returns the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


@dataclass
class OneNodeSlurm:
    """The daemons and how to use them; a context manager. `devices`: the device files of the GPUs. `isolates`: whether
    cgroups confine a job to its devices; if they can't, `why_not` says why."""

    devices: Sequence[str]
    isolates: bool = True
    why_not: str = ""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="headway-proof-", dir="/var/tmp")))
    _daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> OneNodeSlurm:
        """Starts the daemons. Raises SlurmFailed when they do not come up."""
        try:
            self.folder.chmod(0o755)
            self._start_munge()
            try:
                self._start_slurm()
            except SlurmFailed as error:
                # Without writable cgroups everything but the isolation can still be checked.
                self._end(self._daemons[1:])
                self.isolates, self.why_not = False, str(error)
                self._start_slurm()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def env(self) -> dict[str, str]:
        """The environment in which Slurm's commands find this Slurm."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        return {**kept, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *argv: str, stdin: str = "", limit_s: float = _LIMIT_S) -> str:
        """Runs a command of Slurm and returns its output. Raises SlurmFailed when it fails or does not end."""
        try:
            ran = subprocess.run(
                argv, env=self.env, input=stdin, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise SlurmFailed(f"{argv[0]} did not end within {limit_s:.0f} s") from None
        if ran.returncode:
            raise SlurmFailed(f"{argv[0]} ended with {ran.returncode}: {(ran.stderr or ran.stdout).strip()[-300:]}")
        return ran.stdout

    def version(self) -> str:
        """Returns Slurm's version."""
        return self.run("sinfo", "--version").split()[-1]

    def job(self, number: int, name: str) -> str:
        """Returns one field of scontrol's output for a job."""
        found = re.search(rf"\b{name}=(\S*)", self.run("scontrol", "--oneliner", "show", "job", str(number)))
        return found[1] if found else ""

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = [
            f"--{name}={self.folder}/munge.{end}"
            for name, end in (
                ("key-file", "key"),
                ("socket", "socket"),
                ("pid-file", "pid"),
                ("log-file", "log"),
                ("seed-file", "seed"),
            )
        ]
        self._start("munged", "--foreground", "--force", *files)
        self._await(lambda: (self.folder / "munge.socket").exists(), "munged", self.folder / "munge.log")

    def _start_slurm(self) -> None:
        """Writes the configuration and starts slurmctld and slurmd. Raises SlurmFailed with a daemon's error."""
        for name in ("state", "spool"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        for name in ("slurmctld.log", "slurmd.log"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "slurm.conf").write_text(self._slurm_conf())
        (self.folder / "cgroup.conf").write_text(self._cgroup_conf())
        (self.folder / "gres.conf").write_text(self._gres_conf())
        self._start("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        self._await(self._answers, "slurmctld", self.folder / "slurmctld.log")
        self._start("slurmd", "-D", "-f", str(self.folder / "slurm.conf"))
        self._await(self._idle, "slurmd", self.folder / "slurmd.log")

    def _answers(self) -> bool:
        ran = subprocess.run(
            ["scontrol", "ping"], env=self.env, capture_output=True, text=True, timeout=30, check=False
        )
        return "is UP" in ran.stdout

    def _idle(self) -> bool:
        return self.run("sinfo", "--noheader", "--format=%t").split() == ["idle"]

    def _start(self, *argv: str) -> None:
        out = (self.folder / f"{argv[0]}.out").open("wb")
        with out:
            # In sessions of their own, so that Ctrl-C leaves the daemons running until the jobs have ended.
            self._daemons.append(
                subprocess.Popen(
                    argv,
                    env=self.env,
                    cwd=self.folder,  # end_steps knows each slurmstepd by it
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _await(self, ready: Callable[[], bool], daemon: str, log: Path) -> None:
        """Waits until `ready`. Raises SlurmFailed with the daemon's error if it ends or takes too long."""
        ends = time.monotonic() + _START_S
        while not ready():
            ended = self._daemons[-1].poll() is not None
            if ended or time.monotonic() > ends:
                what = "ended" if ended else f"was not ready within {_START_S:.0f} s"
                raise SlurmFailed(f"{daemon} {what}: {self._reason(daemon, log)}")
            time.sleep(_POLL_S)

    def _reason(self, daemon: str, log: Path) -> str:
        texts = [path.read_text(errors="replace") for path in (log, self.folder / f"{daemon}.out") if path.exists()]
        lines = [line for text in texts for line in text.splitlines() if line.strip()]
        fatal = [line for line in lines if "fatal:" in line]
        errors = [
            line for line in lines if "error:" in line and "Could not open" not in line
        ]  # no state at its first start
        return re.sub(r"^\[[^]]*\] ", "", (fatal or errors or lines or ["it wrote nothing"])[0])[:300]

    def _slurm_conf(self) -> str:
        ports = [_free_port(), _free_port()]
        name = socket.gethostname().partition(".")[0]
        cgroup = ("proctrack/cgroup", "task/cgroup") if self.isolates else ("proctrack/linuxproc", "task/none")
        memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
        return f"""\
ClusterName=proof
SlurmctldHost={name}({_LOOPBACK})
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={self.folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ProctrackType={cgroup[0]}
TaskPlugin={cgroup[1]}
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=1
ReturnToService=2
JobRequeue=1
KillWait=5
MpiDefault=none
NodeName={name} NodeAddr={_LOOPBACK} CPUs={os.cpu_count()} RealMemory={memory_mib * 9 // 10} Gres=gpu:{len(self.devices)}
PartitionName=proof Nodes={name} Default=YES MaxTime=60
"""

    def _cgroup_conf(self) -> str:
        # Without systemd in charge of the machine, slurmd makes its own cgroups.
        alone = "" if os.path.isdir("/run/systemd/system") else "IgnoreSystemd=yes\n"
        if self.isolates:
            return f"CgroupPlugin=autodetect\nConstrainDevices=yes\n{alone}"
        # Older versions use no cgroups unless a plugin asks for them.
        return "CgroupPlugin=disabled\n" if self.version() >= _CAN_DISABLE_CGROUPS else ""

    def _gres_conf(self) -> str:
        return "".join(f"Name=gpu File={device} Flags=nvidia_gpu_env\n" for device in self.devices)

    def _close(self) -> None:
        if not self._end_jobs():
            end_steps(self.folder.resolve())
        self._end(self._daemons)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end_jobs(self) -> bool:
        """Ends the jobs that still run, which would outlive the daemons. Returns whether Slurm says that none is left."""
        ends = time.monotonic() + _END_S
        with contextlib.suppress(SlurmFailed):
            while len(self._daemons) == len(DAEMONS) and time.monotonic() < ends:
                if not self.run("squeue", "--noheader", limit_s=_END_S).strip():
                    return True
                self.run("scancel", "--partition=proof", limit_s=_END_S)
                time.sleep(_POLL_S)
        return False

    def _end(self, daemons: Sequence[subprocess.Popen[bytes]]) -> None:
        for daemon in reversed(list(daemons)):
            daemon.terminate()
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
            self._daemons.remove(daemon)


def _free_port() -> int:
    with socket.create_server((_LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])
