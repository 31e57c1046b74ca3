"""README.md and report.md of exported Slurm files. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.catalog.node_images import IMAGES
from headway.cluster.slurm_export.account_scripts import ACCOUNTS, QOS, RESERVATIONS, USERS
from headway.cluster.slurm_export.plain_conf import PLAIN_STATE_FOLDER, ExportedKey
from headway.domain.cluster import Cluster

# (feature of Headway, replacement) that every cluster has
_ALWAYS = (
    ("pages, API and the commands of `headway`", "use sbatch, squeue and sacct"),
    ("detection and repair of faulty nodes, requeue of the jobs of a faulty node", "set HealthCheckProgram in slurm.conf"),
    ("firewall, sshd settings and SSH between the nodes of a job", "configure them on the machines"),
    ("a /tmp and /dev/shm for each job", "JobContainerType=job_container/tmpfs with the exported job_container.conf"),
    ("limits on the processes of jobs, secrets of jobs (`--secret`)", "TasksMax of slurmd.service; files in homes"),
    ("monitoring and alerts", "run your own exporters"),
    ("backups", "dump the database slurm_acct_db, and copy the state folder"),
    ("mounts of home, scratch and volumes", "mount them on every machine, at the same paths"),
)  # fmt: skip


def lost_features(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yields (what plain Slurm does not have, what to do instead) for the features that this cluster uses."""
    yield from _ALWAYS
    if cluster.containers == "builtin":
        yield (
            "the options --container-image and --container-mounts, images of `headway container`",
            "install Pyxis and Enroot",
        )
    if cluster.containers == "enroot":
        yield "folders of Enroot, which Headway's prolog creates", "create them in a prolog of your own"
    for team in cluster.teams:
        if team.budget:
            yield f"the budget of team {team.name}", "set GrpTRESMins of its QOS"
        if team.gpu_hours:
            per = team.gpu_hours.per
            yield (
                f"the start of a new {per} for the GPU-hours of team {team.name}",
                f"each {per}: sacctmgr -i modify qos {team.name} set RawUsage=0",
            )
    if any(group.autoscaled for group in cluster.groups):
        yield "machines that are created and deleted by demand", "write a ResumeProgram and SuspendProgram"
    if any(group.parts.mig or group.parts.mps for group in cluster.groups):
        yield (
            "division of GPUs into MIG instances, control daemons of MPS",
            "run nvidia-smi mig and nvidia-cuda-mps-control",
        )
    if cluster.restricts_network:
        yield "rules for what jobs may reach over the network", "write firewall rules"
    if cluster.storage.quotas:
        yield "quotas of users' folders", "set them with setquota or the file system's own program"
    if any(dataset.versioned for dataset in cluster.storage.datasets):
        yield "versions of datasets", "copy the folders"
    if cluster.environments:
        yield "software environments", "copy the folder of environments, or build them with pip"
    if cluster.mail_relay:
        yield f"mail through {cluster.mail_relay}", "configure the machine's mail program"
    if cluster.controllers > 1:
        yield "the takeover within seconds by the second head", "slurmctld's own takeover stays; share the state folder"
    if cluster.simulated_gpus:
        yield (
            "SIMULATED GPUs and pretended hardware",
            "correct NodeName and gres.conf for real machines, remove SlurmdParameters",
        )


def report(cluster: Cluster, keys: Sequence[ExportedKey]) -> str:
    """Returns report.md: what plain Slurm lacks, and what became of each key."""
    changed = [entry for entry in keys if not entry.kept]
    rows = [
        f"# Slurm files of {cluster.name}",
        "",
        f"{len(keys):,} keys were read: {len(keys) - len(changed):,} are kept, "
        f"{sum(entry.written is not None for entry in changed):,} changed, "
        f"{sum(entry.written is None for entry in changed):,} left out.",
        "",
        "## Not in plain Slurm",
        "",
        "| Of this cluster | Instead |",
        "|---|---|",
        *(f"| {what} | {instead} |" for what, instead in lost_features(cluster)),
        "",
        "## Keys that were changed or left out",
        "",
        "| File | Key | Headway's value | Now | Why | Instead |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {entry.file} | {entry.key} | {_cell(entry.value)} | {_cell(entry.written) if entry.written else 'left out'} "
        f"| {entry.why} | {entry.instead} |"
        for entry in dict.fromkeys(changed)
    ]
    kept: dict[str, list[str]] = {}
    for entry in keys:
        if entry.kept:
            kept.setdefault(entry.file, []).append(entry.key)
    rows += ["", "## Keys that were kept", "", "| File | Keys |", "|---|---|"]
    rows += [f"| {file} | {', '.join(dict.fromkeys(names))} |" for file, names in kept.items()]
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


_README = """\
# @NAME@ as plain Slurm

These files run with Slurm @SLURM@ of @DEBIAN@ and without Headway. report.md says which parts of the
cluster are not in them.

1. Correct the addresses in `hosts`. The names must be the machines' host names. Remove a line `127.0.1.1` with the
   machine's own name.
2. Every machine needs the same MUNGE key. Keep that of the old cluster (/etc/munge/munge.key on its head), or copy that of
   the new head to the nodes. No key and no password is in these files.
3. Users have the uids of the old cluster, so that they own their files. They sign in by the means that you configure.
4. The history of jobs is in the database slurm_acct_db on the old head, pending jobs are in slurmctld's state folder. To keep
   them, stop the old cluster, copy both before step 5, and leave out `@QOS@` and `@ACCOUNTS@`.

## 5. On the head

Run these commands as root in the folder with these files.

```sh
set -e
apt-get update
apt-get install -y slurmctld slurmdbd slurm-client munge mariadb-server libpmix-dev
cat hosts >>/etc/hosts
sh @USERS@
install -m 644 @CONFS@@LUA@ /etc/slurm/
install -m 600 -o slurm -g slurm slurmdbd.conf /etc/slurm/
install -d -m 700 -o slurm -g slurm @STATE@
mariadb -e "CREATE DATABASE IF NOT EXISTS slurm_acct_db; CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
    GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
systemctl restart munge
systemctl restart slurmdbd
until sacctmgr -nP show cluster; do systemctl start slurmdbd; sleep 1; done
sh @QOS@
systemctl restart slurmctld
until scontrol ping | grep UP; do sleep 1; done
sh @ACCOUNTS@
```

## 6. On every node

Copy the folder to the node, and the head's /etc/munge/munge.key into it, then run these commands there as root.

```sh
set -e
cat hosts >>/etc/hosts
install -d /etc/slurm
install -m 644 @CONFS@ /etc/slurm/
@SCRIPTS@apt-get update
apt-get install -y munge
install -m 400 -o munge -g munge munge.key /etc/munge/
systemctl restart munge
apt-get install -y slurmd slurm-client libpmix-dev
sh @USERS@
systemctl restart slurmd
rm munge.key
```

`sinfo` then shows the nodes as idle.@RESERVATIONS@
"""


def readme(cluster: Cluster, files: Sequence[str]) -> str:
    """Returns README.md: how plain Slurm starts from the files, with one block of commands for a head and one for a node."""
    confs = " ".join(name for name in files if name.endswith(".conf") and name != "slurmdbd.conf")
    scripts = [name for name in files if name.startswith("site-")]
    values = {
        "NAME": cluster.name,
        "SLURM": cluster.slurm_version,
        "DEBIAN": IMAGES[cluster.image].debian,
        "USERS": USERS,
        "QOS": QOS,
        "ACCOUNTS": ACCOUNTS,
        "CONFS": confs,
        "LUA": " job_submit.lua" if "job_submit.lua" in files else "",
        "SCRIPTS": f"install -m 755 {' '.join(scripts)} /etc/slurm/\n" if scripts else "",
        "RESERVATIONS": f" Then run `sh {RESERVATIONS}` on the head." if RESERVATIONS in files else "",
        "STATE": cluster.state_folder if cluster.storage.state else PLAIN_STATE_FOLDER,
    }
    text = _README
    for mark, value in values.items():
        text = text.replace(f"@{mark}@", value)
    return text
