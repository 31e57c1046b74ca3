"""systemd drop-ins of the daemons on heads and nodes: limits, restarts and start order of mariadb, slurmdbd, slurmctld,
slurmrestd, slurmd and munge. The mount units are in `volume_mounts`, the order of all units in `unit_list`."""

from __future__ import annotations

from collections.abc import Mapping

from headway.catalog.slurm_releases import SlurmRelease
from headway.domain.cluster import ACCOUNTING_FOLDER, RESTORING_SUFFIX, Cluster, Group
from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK, path, require_word
from headway.render.ha import single_active_head, slurm_state_folder
from headway.render.machine_paths import PMIX
from headway.render.system.login.limits_conf import user_processes
from headway.render.system.mariadb import DATADIR

UNITS = "/etc/systemd/system"
REST_SOCKET = "/run/headway/slurmrestd.sock"
REST_LISTEN = "/run/slurmrestd/slurmrestd.sock"  # in the daemon's own folder; REST_SOCKET is a link to it
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
    """Returns a condition that prevents a start on a half-restored folder. node/programs/slurm_state_backup.py creates and
    removes the marker."""
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
ExecStart=/usr/sbin/slurmrestd -t {_REST_THREADS} -a rest_auth/jwt -s {known.slurmrestd_plugins}{parsers} unix:{REST_LISTEN}
{_AGAIN}
OOMScoreAdjust=-500
"""


_PMIX_ROOM = "size=256m,nr_inodes=0,mode=0755,nosuid,nodev"
_BOOTED = """\
# After a power-up slurmctld accepts only a slurmd that started after a boot. A container reports its host's boot time, and a
# rented machine may have booted for an earlier request. So the first slurmd after a boot gets -b. Later ones must not, because
# slurmctld would then consider the node's jobs lost.
ExecStart=/bin/sh -c 'exec /usr/sbin/slurmd {arguments} $$([ -e /run/headway/slurmd-began ] || echo -b) --conf-server {head}'
ExecStartPost=/usr/bin/touch /run/headway/slurmd-began"""


# Does not mount over a folder that steps are using; the next start tries again.
_OWN_ROOM = f"""\
# slurmstepd creates a folder in it for each step. Users can write to their own folder only, because the names can be guessed. It
# is a separate file system, because a full /run would stop the whole machine.
ExecStartPre=-/bin/sh -c 'mountpoint -q {PMIX} || [ -n "$$(ls -A {PMIX})" ] || exec mount -t tmpfs -o {_PMIX_ROOM} pmix {PMIX}'"""


def node_units(cluster: Cluster, known: SlurmRelease, group: Group) -> dict[str, File]:
    """Returns drop-ins of a node's daemons. slurmd fetches its configuration from the heads (configless)."""
    head = ",".join(require_word(name, "name") for name in cluster.heads)
    start = f"ExecStart=/usr/sbin/slurmd {known.slurmd_arguments} --conf-server {head}"
    made_on_demand = cluster.provider.shares_one_host or cluster.rents_machines
    if made_on_demand and group.idle_s is not None:
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
# Of each user in all jobs on this node together: a program that starts processes without end does not stop the node.
LimitNPROC={user_processes(cluster, group)}
{_PROTECT}
{_AGAIN}
"""
    munge = f"# {MARK}\n[Unit]\n{TRIES}\n[Service]\n{_PROTECT}\n{_AGAIN}\n"
    return {drop_in("slurmd.service"): File(slurmd), drop_in("munge.service"): File(munge)}
