"""Renders the prolog and epilog, which slurmd runs as root on each node of a job: before its first and after its last
step.

They must be fast and must not fail because of the job: a failing prolog drains the node."""

from __future__ import annotations

from collections.abc import Sequence

from headway.catalog.slurm_releases import SlurmRelease
from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK, path
from headway.render.machine_paths import (
    AGENT_COMMAND,
    EPILOG,
    JOB_SECRETS,
    JOB_SHM,
    JOB_TMP,
    PMIX,
    PROLOG,
    SECRETS,
    SLURMD_SPOOL,
)
from headway.render.slurm.hooks import job_network, site_scripts
from headway.render.slurm.hooks import mps as mps_script
from headway.render.system.agent_config import LOOKED, UNFIT
from headway.render.system.login.limits_conf import LEAST_JOB_PROCESSES

# Folders other than volumes where all users may write. Those in memory come first, because the others may contain
# millions of files.
LEFT = f"/dev/shm /dev/mqueue {PMIX} /tmp /var/tmp"
SYSV = "/proc/sysvipc"
XID_MARK = "/run/headway/xid"  # created by the agent (node/agent), removed by health.incidents.engine
# The process id of a test that a job ends when it starts; written by the agent (node/agent/node_tests/end_on_job_start.py)
GIVES_WAY = "/run/headway/gives-way"
# With cgroup v1, the groups in which node/image/spank/job_processes.h limits the processes of jobs
PIDS_GROUPS = "/sys/fs/cgroup/pids/headway-jobs"
# A file named after a job means that it will be requeued; health.incidents.move_jobs creates and removes it
HOLD = "/run/headway/hold"

# Returns 0 if a volume is not mounted although its source exists. It only accesses the disk of the source, for at most
# 2 seconds.
_LOST = """\
lost() {{
    for volume in {volumes}; do
        grep -qsF " ${{volume#*:}} " /proc/self/mounts || ! timeout 2 test -d "${{volume%%:*}}" || return 0
    done
    return 1
}}
"""

_PROLOG = f"""\
#!/bin/bash
# {MARK}
# slurmd runs this as root before a job's first step on this node. Output goes to the node's journal; a failure drains the node.
set -u
@LOST@# The first job after a boot may start before the agent's first check: waits for that check, at most 20 seconds.
for ((n = 0; n < 200; n++)); do
    [ -e {LOOKED} ] && break
    sleep 0.1
done
# The agent checks the machine every few seconds and writes this file while it finds a fault that would break a job. The job is
# then requeued without a hold and runs on another node.
if [ -e {UNFIT} ]; then
    echo "headway: $(cat {UNFIT})" >&2
    exit 1
fi
if lost; then
    echo "headway: ${{volume#*:}} is not mounted" >&2
    exit 1
fi
# A requeued job keeps its number. If slurmstepd of an earlier run is still ending here, or was killed, its PMIx socket exists,
# and the step of the same number can't start ("launch failed: Unspecified error"). Waits at most 10 seconds for that slurmstepd.
for ((n = 0; n < 100; n++)); do
    compgen -G "{SLURMD_SPOOL}/stepd.slurm.pmix.$SLURM_JOB_ID.*" >/dev/null || break
    pgrep -f "^slurmstepd: \\[$SLURM_JOB_ID\\.([0-9]|batch|interactive)" >/dev/null || break
    sleep 0.1
done
rm -f "{SLURMD_SPOOL}/stepd.slurm.pmix.$SLURM_JOB_ID."*
# Creates the job's own /tmp and /dev/shm; private_tmp.so (plugstack.conf) binds them for every task. The folder for /dev/shm is
# in memory, because data loaders exchange batches there. The epilog reads from `uid` which users still have jobs here.
own={JOB_TMP}/$SLURM_JOB_ID
# Any user may create a folder or link in /dev/shm: one that root does not own is removed.
[ -O {JOB_SHM} ] && [ ! -L {JOB_SHM} ] || rm -rf --one-file-system {JOB_SHM}
mkdir -m 0700 {JOB_SHM} 2>/dev/null || {{ [ -O {JOB_SHM} ] && [ ! -L {JOB_SHM} ]; }} || exit 1
# A slurmctld that was killed before it saved its state gives job numbers again, also that of a job that has not ended here
# yet. Each job has folders of its own, and the epilog of the former one finds its own under the name .former.
if [ -e "$own" ]; then
    if [ -e "$own.former" ]; then
        gone={JOB_TMP}/gone-$SLURM_JOB_ID.$$
        mv -T "$own.former" "$gone" && rm -f "$gone/uid" || exit 1
        # All links are read and checked before anything is deleted.
        folders=("$gone")
        shm=$(readlink "$gone/shm") && [[ $shm == {JOB_SHM}/"$SLURM_JOB_ID".* ]] && folders+=("$shm")
        secrets=$(readlink "$gone/secrets") && [[ $secrets == {JOB_SECRETS}/"$SLURM_JOB_ID".* ]] &&
            rm -rf --one-file-system "$secrets"
        systemd-run --quiet --collect --no-block rm -rf --one-file-system "${{folders[@]}}"
    fi
    mv -T "$own" "$own.former" || exit 1
fi
shm=$(mktemp -d "{JOB_SHM}/$SLURM_JOB_ID.XXXXXX") || exit 1
mkdir -p -m 0755 {JOB_TMP} && mkdir -m 0700 "$own" && mkdir "$own/tmp" || exit 1
chmod 1777 "$own/tmp" "$shm"
ln -sT "$shm" "$own/shm" && echo "$SLURM_JOB_UID" >"$own/uid" || exit 1
# The limit of processes and threads of the job on this node. private_tmp.so sets it; the number of CPUs may read 8(x2),40.
cpus=${{SLURM_JOB_CPUS_PER_NODE:-$(nproc)}} processes={LEAST_JOB_PROCESSES}
for number in ${{cpus//,/ }}; do
    number=${{number%%[(]*}}
    [ $((number * @PER_CPU@)) -le "$processes" ] || processes=$((number * @PER_CPU@))
done
echo "$processes" >"$own/processes" || exit 1
# The agent reads the job's GPUs here to label their metrics with the job. The new folder shows it that a job starts.
echo "${{SLURM_JOB_GPUS:-}}" >"$own/gpus" || exit 1
# The job's secrets (--secret): files in memory, which private_tmp.so shows to the job's tasks only. If they can't be had, a
# sentence is left, with which the tasks fail: the node stays in service.
if [ -n "${{SPANK_HEADWAY_SECRETS:-}}" ]; then
    mkdir -p -m 0755 {SECRETS} && mkdir -p -m 0700 {JOB_SECRETS} || exit 1
    secrets=$(mktemp -d "{JOB_SECRETS}/$SLURM_JOB_ID.XXXXXX") && ln -sT "$secrets" "$own/secrets" || exit 1
    {AGENT_COMMAND} secrets "$secrets" "$own/secrets-error" ||
        echo "headway: $(uname -n) can't fetch the job's secrets: tell an administrator, submit again" >"$own/secrets-error" ||
        exit 1
fi
@MPS@@NETWORK@# A fabric test measures idle nodes without reserving them. It ends here, before the job's first process starts.
if read -r test 2>/dev/null <{GIVES_WAY} && [[ $(tr '\\0' ' ' 2>/dev/null <"/proc/$test/cmdline") == *"agent.pyz test "* ]]; then
    kill -KILL "$test" 2>/dev/null
    for ((n = 0; n < 100; n++)); do
        [ -e "/proc/$test" ] || break
        sleep 0.05
    done
fi
@SITE@"""

# Slurm would only say "Prolog error". It keeps the reason of a node that is drained already.
_SITE = """\
# The site's own scripts, in the order of their numbers. The first that fails ends this program, and drains the node.
for script in @FOLDER@/*; do
    [ -x "$script" ] || continue
    "$script" && continue
    said="site @KIND@ ${script##*/}: exit code $?"
    echo "headway: $said" >&2
    timeout 10 scontrol update nodename="${SLURMD_NODENAME:-$(uname -n)}" state=drain reason="$said" >&2
    exit 1
done
"""

_OUTPUT_FOLDERS = """\
# This version of Slurm does not create the folders of --output and --error. They are created as the user and never as root,
# because the user chose the paths.
if [ -n "${SLURM_JOB_ID:-}" ] && [ "${SLURM_JOB_UID:-0}" -gt 0 ]; then
    job=$(scontrol show job -o "$SLURM_JOB_ID" 2>/dev/null) || job=
    work=$(sed -n 's/.* WorkDir=\\([^ ]*\\).*/\\1/p' <<<"$job")
    for kind in StdOut StdErr; do
        file=$(sed -n "s/.* $kind=\\\\([^ ]*\\\\).*/\\\\1/p" <<<"$job")
        case $file in /dev/*|'') continue ;; /*) ;; *) file=$work/$file ;; esac
        setpriv --reuid "$SLURM_JOB_UID" --regid "${SLURM_JOB_GID:-$SLURM_JOB_UID}" --clear-groups --no-new-privs \\
            timeout 5 mkdir -p -m 0755 -- "${file%/*}" 2>/dev/null || true
    done
fi
exit 0
"""

_EPILOG = f"""\
#!/bin/bash
# {MARK}
# slurmd runs this as root after a job's last step on this node.
set -u
[ -n "${{SLURM_JOB_ID:-}}" ] || exit 0
own={JOB_TMP}/$SLURM_JOB_ID
# The agent reports to the head that the job ends when this file appears, and again when it is removed below.
: >"$own.ends"
# If a later job has this number (see the prolog), this is the epilog of the former one until a task of the later one has
# begun (private_tmp.so makes `started`). It deletes the folders with these inodes, whatever their names are then.
mine=$(stat -c %i "$own.former" 2>/dev/null)
former=$mine
[ -n "$former" ] && [ ! -e "$own/started" ] || {{ mine+=" $(stat -c %i "$own" 2>/dev/null)" former=; }}
"""

_HOLDS = f"""\
# A hardware fault usually ends the job before Headway can drain the node. If Headway requeues the job while it is still
# completing, dependent jobs do not see it as failed. So a failed job with GPUs waits here 2 seconds (8 if a volume is lost)
# for a GPU error, and then at most 10 seconds until Headway has handled the error and removes its mark. A job that Headway
# will requeue (it has a file in {HOLD}) waits at most 15 seconds. Exit code 1 is mostly slurmctld's own, because a node of
# the job is down (a script's exit 1 is 256): then the job waits for no error that may still come, only for one that is there.
seen() {{ [ -e {XID_MARK} ] && [ $(($(date +%s) - $(stat -c %Y {XID_MARK} 2>/dev/null || echo 0))) -lt 60 ]; }}
held() {{ [ -e {HOLD}/"$SLURM_JOB_ID" ]; }}
failed() {{
    [ "${{SLURM_JOB_EXIT_CODE:-256}}" != 0 ] && {{ [ -n "${{SLURM_JOB_GPUS:-}}${{CUDA_VISIBLE_DEVICES:-}}" ] || lost; }}
}}
if failed && [ "${{SLURM_JOB_EXIT_CODE:-256}}" != 1 ]; then
    for ((n = 0; n < 40; n++)); do
        seen && break
        [ "$n" -lt 10 ] || lost || break
        sleep 0.2
    done
fi
for ((n = 0; n < 75; n++)); do
    {{ failed && [ "$n" -lt 50 ] && seen; }} || held || break
    sleep 0.2
done
rm -f {HOLD}/"$SLURM_JOB_ID"
"""

_CLEANS = f"""\
# An epilog that takes too long drains the node. So folders with millions of files are deleted in the background.
delete() {{
    timeout 30 rm -rf --one-file-system "$1" || systemd-run --quiet --collect --no-block rm -rf --one-file-system "$1"
}}
# Renamed first: a later job with this number may start meanwhile.
take() {{ gone=${{1%/*}}/gone-$SLURM_JOB_ID.$$ && mv -T "$1" "$gone" && delete "$gone"; }}
for folder in "$own" "$own.former"; do
    [[ " $mine " == *" $(stat -c %i "$folder" 2>/dev/null || echo none) "* ]] || continue
    rm -f "$folder/uid" "$folder/mps"
    shm=$(readlink "$folder/shm") && [[ $shm == {JOB_SHM}/"$SLURM_JOB_ID".* ]] && delete "$shm"
    secrets=$(readlink "$folder/secrets") && [[ $secrets == {JOB_SECRETS}/"$SLURM_JOB_ID".* ]] && delete "$secrets"
    take "$folder"
done
for folder in /var/lib/headway/containers/"$SLURM_JOB_ID" /run/headway/containers/"$SLURM_JOB_ID"; do
    [ -n "$former" ] || [ ! -e "$folder" ] || take "$folder"
done
# Fails if a later job with this number has tasks.
rmdir {PIDS_GROUPS}/job_"$SLURM_JOB_ID" 2>/dev/null
rm -f "$own.ends"
@MPS@@NETWORK@# The last job of a user on this node deletes the user's files outside of the jobs' folders (sbcast writes to /tmp).
# The user's next job may start meanwhile, so files that are newer than this moment and jobs' own shared memory stay.
now=@$(date +%s.%N)
if [ "${{SLURM_JOB_UID:-0}}" -ge 1000 ] && ! grep -qsx "$SLURM_JOB_UID" {JOB_TMP}/*/uid; then
    clean=(find {LEFT} -xdev -mindepth 1 -user "$SLURM_JOB_UID" ! -newerct "$now" ! -path "{JOB_SHM}/*" -delete)
    timeout 30 "${{clean[@]}}" 2>/dev/null
    [ $? -ne 124 ] || systemd-run --quiet --collect --no-block "${{clean[@]}}"
    # System V shared memory, queues and semaphores are not files. Segments that a process has attached stay.
    for kind in shm:-m msg:-q sem:-s; do
        awk -v uid="$SLURM_JOB_UID" -v now="${{now#@}}" -v option="${{kind#*:}}" '
            NR == 1 {{ for (i = 1; i <= NF; i++) at[$i] = i; next }}
            $at["cuid"] == uid && $at["ctime"] < int(now) && !(("nattch" in at) && $at["nattch"]) {{ print option, $2 }}
        ' "{SYSV}/${{kind%:*}}" | timeout 10 xargs -r -n 1000 ipcrm
    done 2>/dev/null
fi
@SITE@exit 0
"""


_ENROOT_FOLDERS = """\
# Enroot's folders of this user. They are created here, so that no other user can create them first.
for place in /run/enroot /var/lib/enroot; do
    install -d -m 0700 -o "$SLURM_JOB_UID" -g "${SLURM_JOB_GID:-$SLURM_JOB_UID}" "$place/user-$SLURM_JOB_UID" || exit 1
done
"""


def scripts(
    known: SlurmRelease,
    containers: str = "",
    *,
    acts: bool = True,
    mps: bool = False,
    network: bool = False,
    processes_per_cpu: int = 0,
    volumes: Sequence[tuple[str, str, bool]] = (),
    outside: Sequence[str] = (),
) -> dict[str, File]:
    """Returns the two scripts. `containers`: what runs them, as in `Cluster`. `acts`: whether jobs are requeued after
    faults. `mps`: whether jobs may share GPUs by MPS. `processes_per_cpu`: processes and threads of a job for each of its
    CPUs. `network`: whether jobs of a team are restricted on the network. `volumes`: as returned by
    volume_mounts.provided_volumes.
    `outside`: mount points of file systems from other servers."""
    rows = [f"{path(what, 'storage')}:{path(where, 'storage')}" for what, where, _ in volumes]
    rows += [f"/:{path(where, 'storage')}" for where in outside]
    lost = _LOST.format(volumes=" ".join(rows))
    folders = _ENROOT_FOLDERS if containers == "enroot" else ""
    starts = f'own="$own" {mps_script.SCRIPT} start || exit 1\n' if mps else ""
    joins = f'own="$own" {job_network.SCRIPT} start || exit 1\n' if network else ""
    prolog = (
        _PROLOG.replace("@LOST@", lost)
        .replace("@MPS@", starts)
        .replace("@NETWORK@", joins)
        .replace("@PER_CPU@", str(processes_per_cpu))
        .replace("@SITE@", _site("prolog", site_scripts.PROLOGS))
        + folders
        + ("exit 0\n" if known.creates_output_folders else _OUTPUT_FOLDERS)
    )
    ends = f"{mps_script.SCRIPT} end\n" if mps else ""
    leaves = f"{job_network.SCRIPT} end\n" if network else ""
    epilog = _EPILOG + (lost + _HOLDS if acts else "") + _CLEANS.replace("@MPS@", ends).replace("@NETWORK@", leaves)
    epilog = epilog.replace("@SITE@", _site("epilog", site_scripts.EPILOGS))
    return {PROLOG: File(prolog, mode=0o755), EPILOG: File(epilog, mode=0o755)}


def _site(kind: str, folder: str) -> str:
    return _SITE.replace("@FOLDER@", folder).replace("@KIND@", kind)
