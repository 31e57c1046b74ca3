"""Shell scripts with which a plain Slurm gets the cluster's users, accounts and limits. Pure."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import datetime

from headway.changes.account_changes import account_changes
from headway.changes.desired_accounts import desired_accounts
from headway.changes.reservation_changes import creation_words, is_over
from headway.domain.cluster import Cluster
from headway.domain.machines.site import Site
from headway.domain.slurm.accounts import Accounts, Qos
from headway.slurm.accounting.sacctmgr_commands import account_change_argv, add_argv
from headway.slurm.planned_reservations import creation_argv

QOS, ACCOUNTS, USERS, RESERVATIONS = "qos.sh", "accounts.sh", "users.sh", "reservations.sh"

# sacctmgr refuses to add what is there, so that the scripts can be run again.
_RUN = """\
run() {
    said=$("$@" 2>&1) && return
    case $said in *"Nothing new added"* | *"already exists"* | *"Nothing modified"* | *"uplicate reservation"*) return ;; esac
    printf '%s\\n' "$*" "$said" >&2
    exit 1
}
"""

_ADD_USER = """\
#!/bin/sh
# Adds the users of the cluster, with their uids. Run it as root on every machine.
set -e
add() {
    getent group "$1" >/dev/null || groupadd -g "$2" "$1"
    getent passwd "$1" >/dev/null || useradd -u "$2" -g "$1" -d "$3" -m -s /bin/bash "$1"
}
"""


def qos_script(cluster: Cluster) -> str:
    """Returns the script that adds the cluster and the names of its QOS. slurmctld starts only when the QOS of its
    partitions exist, and their limits on GPUs can be set only after it has started."""
    commands = [add_argv("cluster", cluster.name)]
    commands += [add_argv("qos", qos.name) for qos in desired_accounts(cluster).qos]
    return _script("Adds the cluster and its QOS to slurmdbd, before slurmctld starts for the first time.", commands)


def accounts_script(cluster: Cluster) -> str:
    """Returns the script that adds limits, accounts and users' associations."""
    desired = replace(desired_accounts(cluster), operators=())
    added = Accounts(qos=tuple(Qos(qos.name) for qos in desired.qos))
    commands = [account_change_argv(change.data) for change in account_changes(desired, added)]
    return _script("Adds limits, accounts and users' associations, when slurmctld runs.", commands)


def reservations_script(cluster: Cluster, now: datetime) -> str:
    """Returns the script that makes the reservations that are not over. `now`: in the head's time zone."""
    planned = [one for one in cluster.reservations if not is_over(one, now)]
    commands = [creation_argv(creation_words(one, now)) for one in planned]
    return _script("Makes the reservations, when slurmctld runs and the nodes are registered.", commands)


def users_script(cluster: Cluster, site: Site) -> str:
    """Returns the script that adds the Linux users, with the uids that their files have. Users who left are named in
    comments: their uids must not be given again."""
    known = sorted(user.name for user in cluster.users if user.name in site.uids)
    rows = [shlex.join(["add", name, str(site.uids[name]), f"{cluster.storage.home}/{name}"]) for name in known]
    rows += [
        f"# {name} has left; files with uid {site.uids[name]} may remain" for name in site.departed if name in site.uids
    ]
    return _ADD_USER + "\n".join(rows) + "\n"


def _script(purpose: str, commands: list[list[str]]) -> str:
    rows = [f"run {shlex.join(command)}" for command in commands]
    return f"#!/bin/sh\n# {purpose} It may be run again.\n{_RUN}" + "\n".join(rows) + "\n"
