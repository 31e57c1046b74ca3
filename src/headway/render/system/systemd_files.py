"""systemd files: drop-ins for the daemons, limits of users on the head, tmpfiles and sysusers. The mount units are in
`volume_mounts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.catalog.releases import SlurmRelease
from headway.domain.cluster import ACCOUNTING_FOLDER, RESTORING_SUFFIX, Cluster, Group, Site
from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK, path, script, word
from headway.render.ha import single_active_head, slurm_state_folder
from headway.render.machine_paths import JOB_TMP, PMIX
from headway.render.system import session_limits
from headway.render.system.mariadb import DATADIR

UNITS = "/etc/systemd/system"
REST_SOCKET = "/run/headway/slurmrestd.sock"
_REST_LISTEN = "/run/slurmrestd/slurmrestd.sock"  # in the daemon's own folder; REST_SOCKET is a link to it
_REST_THREADS = 4
_REST_MEMORY_PERCENT = 25
_PROTECT = "# The OOM killer prefers users' processes to this daemon.\nOOMScoreAdjust=-900"
_MUNGE_THREADS = "# munged checks every message of every node.\nEnvironment=OPTIONS=--num-threads=10"
_EVERY_LINE = (
    "# A job array of 10,000 tasks logs more lines at once than journald's default limit.\nLogRateLimitIntervalSec=0"
)
# Debian 12's unit names another pid file than slurm.conf. With a step after the start, systemd would wait for that file
# forever.
_NO_PID_FILE = "RuntimeDirectory=slurmctld\nPIDFile="
# Restarts after any end except systemctl stop. After 100 starts within ten minutes (TRIES) systemd gives up, because
# more tries would not repair the fault.
_AGAIN = "# Restarts after any exit.\nRestart=always\nRestartSec=1"
TRIES = "StartLimitIntervalSec=600\nStartLimitBurst=100"


def drop_in(unit: str) -> str:
    """Returns the path of Headway's additions to a unit."""
    return f"{UNITS}/{unit}.d/headway.conf"


def database_units() -> dict[str, File]:
    """Returns drop-ins of the accounting daemons, which only the first head runs."""
    return _drop_ins(
        {
            "mariadb.service": f"[Unit]\nRequiresMountsFor={DATADIR}\n{TRIES}\n[Service]\n{_PROTECT}\n{_AGAIN}\n",
            "slurmdbd.service": (
                f"[Unit]\nWants=mariadb.service\n{_unless_half(ACCOUNTING_FOLDER)}{TRIES}\n[Service]\n{_PROTECT}\n{_AGAIN}\n"
            ),
        }
    )


def controller_units(cluster: Cluster, known: SlurmRelease, name: str, *, around: str) -> dict[str, File]:
    """Returns drop-ins of a head's other daemons. `around`: commands before and after each start of slurmctld."""
    first = name == cluster.head
    slurmdbd_first = "Wants=slurmdbd.service\nAfter=slurmdbd.service\n" if first else ""
    own = not cluster.provider.provides_head_state
    programs = [slurm_state_folder.PROGRAM] if own else []
    programs += [single_active_head.PROGRAM] if first and cluster.controllers > 1 else []
    before = "".join(f"ExecStartPre=+{program}\n" for program in programs)
    if own:
        before += (
            f"# It may first copy a large queue from another folder.\nTimeoutStartSec={slurm_state_folder.START_S}\n"
        )
    return _drop_ins(
        {
            "munge.service": f"[Unit]\n{TRIES}\n[Service]\n{_PROTECT}\n{_MUNGE_THREADS}\n{_AGAIN}\n",
            "slurmctld.service": (
                f"[Unit]\n{slurmdbd_first}RequiresMountsFor={path(cluster.state_folder, 'storage.state')}\n"
                f"{_unless_half(cluster.state_folder)}{TRIES}\n"
                f"[Service]\n{_PROTECT}\n{_EVERY_LINE}\n{_AGAIN}\n{_NO_PID_FILE}\n{before}{around}"
            ),
            "slurmrestd.service": _slurmrestd(known),
        }
    )


def _unless_half(place: str) -> str:
    """Returns a condition that prevents a start on a half-restored folder. node/slurm_state_copy.py creates and removes the
    marker."""
    return (
        f"# Not on a half-restored folder: run headway restore again.\nConditionPathExists=!{place}{RESTORING_SUFFIX}\n"
    )


def _drop_ins(texts: Mapping[str, str]) -> dict[str, File]:
    return {drop_in(unit): File(f"# {MARK}\n{text}") for unit, text in texts.items()}


def _slurmrestd(known: SlurmRelease) -> str:
    parsers = f" -d {known.slurmrestd_data_parser}" if known.slurmrestd_data_parser else ""
    return f"""\
[Unit]
After=slurmctld.service
{TRIES}
[Service]
# slurmrestd refuses to run as root or SlurmUser. A request's token names its user.
User=slurmrestd
Group=slurmrestd
Environment=SLURM_JWT=daemon
# Only root and slurmrestd can open the socket. Headway's server connects through SSH.
RuntimeDirectory=slurmrestd
RuntimeDirectoryMode=0700
Environment=SLURMRESTD_DEBUG=2
# A list of 3,000 jobs needs 300 MiB. 20 threads with separate heaps kept that memory and filled the head, so there are few
# threads and one heap, which returns free memory at once.
Environment=MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=1048576
MemoryMax={_REST_MEMORY_PERCENT}%
ExecStart=
ExecStart=/usr/sbin/slurmrestd -t {_REST_THREADS} -a rest_auth/jwt -s {known.slurmrestd_plugins}{parsers} unix:{_REST_LISTEN}
{_AGAIN}
OOMScoreAdjust=-500
"""


_PMIX_ROOM = "size=256m,nr_inodes=64k,mode=1777,nosuid,nodev"
_BOOTED = """\
# After a power-up slurmctld accepts only a slurmd that started after a boot, but a container reports its host's boot time. So
# the first slurmd after a boot gets -b. Later ones must not, because slurmctld would then consider the node's jobs lost.
ExecStart=/bin/sh -c 'exec /usr/sbin/slurmd {arguments} $$([ -e /run/headway/slurmd-began ] || echo -b) --conf-server {head}'
ExecStartPost=/usr/bin/touch /run/headway/slurmd-began"""


# Does not mount over a folder that steps are using; the next start tries again.
_OWN_ROOM = f"""\
# All users can write to this folder. It is a separate file system, because a full /run would stop the whole machine.
ExecStartPre=-/bin/sh -c 'mountpoint -q {PMIX} || [ -n "$$(ls -A {PMIX})" ] || exec mount -t tmpfs -o {_PMIX_ROOM} pmix {PMIX}'"""


def node_units(cluster: Cluster, known: SlurmRelease, group: Group) -> dict[str, File]:
    """Returns drop-ins of a node's daemons. slurmd fetches its configuration from the heads (configless)."""
    head = ",".join(word(name, "name") for name in cluster.heads)
    start = f"ExecStart=/usr/sbin/slurmd {known.slurmd_arguments} --conf-server {head}"
    if cluster.provider.shares_one_host and group.idle_s is not None:
        start = _BOOTED.format(arguments=known.slurmd_arguments, head=head)
    slurmd = f"""\
# {MARK}
[Unit]
# slurmd fetches its configuration from the head (configless), so it does not need a slurm.conf to start.
ConditionPathExists=
After=munge.service
{TRIES}
[Service]
{_OWN_ROOM}
ExecStart=
{start}
# Jobs have these limits: network cards lock memory, and a program may use all of its stack.
LimitMEMLOCK=infinity
LimitSTACK=infinity
LimitNOFILE=131072
{_PROTECT}
{_AGAIN}
"""
    munge = f"# {MARK}\n[Unit]\n{TRIES}\n[Service]\n{_PROTECT}\n{_AGAIN}\n"
    return {drop_in("slurmd.service"): File(slurmd), drop_in("munge.service"): File(munge)}


def user_limits(cpus: int) -> dict[str, File]:
    """Returns limits for the head, so that neither one user nor all together can starve the daemons. `cpus`: CPUs of
    the head."""
    each = f"""\
# {MARK}
[Slice]
# Limits of each user: half of the CPUs, a third of the memory.
CPUAccounting=yes
CPUQuota={session_limits.one_cpu_percent(cpus)}%
MemoryAccounting=yes
MemoryMax={session_limits.ONE_MEMORY_PERCENT}%
TasksMax={session_limits.ONE_TASKS}
"""
    everyone = f"""\
# {MARK}
[Slice]
# Limits of all users together: the daemons have priority and keep a quarter of the memory.
CPUWeight=50
MemoryAccounting=yes
MemoryMax={session_limits.ALL_MEMORY_PERCENT}%
TasksMax={session_limits.ALL_TASKS}
"""
    root = f"""\
# {MARK}
[Slice]
# root is Headway itself and the administrators.
CPUQuota=
MemoryMax=infinity
TasksMax=infinity
"""
    return {
        f"{UNITS}/user-.slice.d/headway.conf": File(each),
        f"{UNITS}/user.slice.d/headway.conf": File(everyone),
        f"{UNITS}/user-0.slice.d/zz-headway.conf": File(root),
    }


_ENROOT_HOOKS = ("50-slurm-pmi.sh", "50-slurm-pytorch.sh")


def tmpfiles(site: Site, *, head: bool, gpus: int = 0, containers: str = "", more: Sequence[str] = ()) -> str:
    """Returns folders and device nodes that are made at every boot. `gpus`: GPUs of the node; `containers`: what runs
    them, as in `Cluster`."""
    rows = [
        "d /run/headway 0755 root root -",
        "d /var/lib/slurm 0755 slurm slurm -",
        "d /var/lib/headway 0755 root root -",
    ]
    if head:
        rows += [
            "# Scratch for all users; the sticky bit keeps users from removing each other's files.",
            *_shared_folders(site),
            "d /var/log/slurm 0755 slurm slurm -",
            f"L+ {REST_SOCKET} - - - - {_REST_LISTEN}",
        ]
    else:
        rows += [
            "d /var/lib/slurm/slurmd 0755 root root -",
            "# Remains of jobs that ran when the machine crashed. Removed only at boot, when no job runs.",
            f"R! {JOB_TMP}/*",
            "R! /var/lib/headway/containers/*",
            "# Sockets of steps: with an old one Slurm does not start the same step of the requeued job here.",
            "R! /var/lib/slurm/slurmd/*_*.[0-9]*",
            "R! /var/lib/slurm/slurmd/*pmix.*",
            f"d {JOB_TMP} 0755 root root -",
            "d /run/headway/hold 0700 root root -",
            f"d {PMIX} 1777 root root -",
        ]
        if containers == "builtin":
            rows += [
                "# Containers of jobs mount their image by FUSE, without privileges.",
                "z /dev/fuse 0666 root root -",
            ]
        if containers == "enroot":
            rows += [f"d {place} 0755 root root -" for place in ("/run/enroot", "/run/pyxis", "/var/lib/enroot")]
            rows.append(
                "# Enables Enroot's hooks for MPI by PMIx and for torch over several nodes. Its GPU hook is enabled by default."
            )
            rows += [f"L /etc/enroot/hooks.d/{name} - - - - /usr/share/enroot/hooks.d/{name}" for name in _ENROOT_HOOKS]
        if site.simulated_gpus and gpus:
            rows.append("# Simulated GPUs: device files without GPUs, which Slurm can allocate to jobs.")
            rows += [f"c+ /dev/nvidia{n} 0666 root root - 195:{n}" for n in range(gpus)]
    return script(*rows, *more)


def _shared_folders(site: Site) -> list[str]:
    """Returns rows for the head's shared folders. Folders that every machine already mounts are not touched."""
    if not site.own:
        return ["d /srv/headway/scratch 1777 root root -", "d /srv/headway/home 0755 root root -"]
    return [
        f"d {path(where, 'storage')} {'0755' if where == '/home' else '1777'} root root -" for where in site.own.nfs
    ]


def sysusers() -> str:
    """Returns the system users that a head needs."""
    return script(
        "# Runs slurmrestd, which refuses root and SlurmUser.",
        'u slurmrestd - "Slurm REST daemon"',
        "# Slurm operator for actions of people whose rights Headway's server has checked.",
        'u headway - "Headway operator"',
    )
