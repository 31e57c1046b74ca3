"""Renders the script with which prolog and epilog add a job to the network policy of its node and remove it, and with which
the unit loads the rules (system/job_network.py)."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.domain.network_policy import TEAM, USER, NetworkPolicy
from headway.render.escaping import MARK, require_word
from headway.render.machine_paths import JOB_TMP

SCRIPT = "/etc/headway/job-network"
RULES = "/etc/headway/job-network.nft"
TABLE = "inet headway_jobs"
CLUSTER_INTERNET = "internet"  # chain for what jobs of teams without a policy of their own connect to


def accept_rules(numbers: str, marks: str) -> tuple[str, ...]:
    """Returns the rules that accept connections and datagrams of users with these numbers, which are `marks` in connections
    within a node."""
    return (
        f"ip id {numbers} meta l4proto tcp update @recent {{ tcp dport . ip id }} accept",
        f"ip id {numbers} accept",
        f"meta nfproto ipv6 ct mark {marks} meta l4proto tcp update @recent_local {{ tcp dport . ct mark }} accept",
        f"meta nfproto ipv6 ct mark {marks} accept",
    )


_ACCEPT_USER = "\n".join(accept_rules("$number", "$number"))
# Prolog and epilog put their variable `own`, the job's folder, in the environment.
_SCRIPT = f"""\
#!/bin/bash
# {MARK}
# `load` loads the rules with the jobs of this node. The prolog runs `start` as root before the first step of a job, the epilog
# `end` after the last. Each of them makes the rules those of all jobs that have a folder, so that they always agree.
set -u
cgroups=/sys/fs/cgroup lock=/run/headway-job-network.lock
# Who may connect to the ports of a team's jobs, and the chain for what they connect to; - is for all other accounts.
declare -A ports=(@PORTS@) internet=(@INTERNET@)

fail() {{
    echo "headway: the network policy of job ${{SLURM_JOB_ID:--}} can't be loaded on $HOSTNAME: $1" >&2
    exit 1
}}

policy_of() {{
    team=$1
    [ -n "${{ports[$team]+given}}" ] || team=-
}}

# Prints the folder of the job's cgroup below $cgroups. nft finds it only in the hierarchy of cgroup v2. If Slurm uses that,
# it is Slurm's own. Otherwise the job gets one for this purpose, which private_tmp.so lets its tasks join.
cgroup_of() {{
    if [ -e "$cgroups/cgroup.controllers" ] && [ ! -d "$cgroups/pids" ]; then
        echo "system.slice/slurmstepd.scope/job_$1"
        return
    fi
    top=
    [ -e "$cgroups/cgroup.controllers" ] || top=unified
    if [ -n "$top" ] && [ ! -e "$cgroups/$top/cgroup.controllers" ]; then
        mkdir -p "$cgroups/$top" && mount -t cgroup2 cgroup2 "$cgroups/$top" || return 1
    fi
    # Local machines share the hierarchy of their host, so the number of the network namespace is part of the path.
    top+=$(sed -n 's/^0:://p' /proc/1/cgroup)
    top=${{top%/init.scope}} top=${{top#/}} top=${{top%/}} machine=$(readlink /proc/1/ns/net)
    echo "${{top:+$top/}}headway-jobs/${{machine//[!0-9]/}}/job_$1"
}}

# Prints the rules without jobs.
rules() {{
    example=$(cgroup_of 0) || return 1
    [[ $example != unified/* ]] || example=${{example#unified/}}
    level=$(tr -cd / <<<"$example/" | wc -c)
    sed "s/@LEVEL@/$level/" {RULES}
}}

# Prints the changes that leave exactly the jobs of this node in the rules. $1: a user whose job has ended.
jobs() {{
    printf 'flush map {TABLE} %s\\n' job_ports job_internet
    users=
    for record in {JOB_TMP}/*/network; do
        read -r uid account cgroup 2>/dev/null <"$record" && [[ $record != *.former/* && -d $cgroups/$cgroup ]] || continue
        policy_of "$account"
        case ${{ports[$team]}} in
        user)
            chain=user_$uid
            [[ " $users " == *" $uid "* ]] || accept_user "$uid"
            users+=" $uid"
            ;;
        team) chain=ports_$team ;;
        *) chain= ;;
        esac
        [ -z "$chain" ] || echo "add element {TABLE} job_ports {{ \\"$cgroup\\" : goto $chain }}"
        echo "add element {TABLE} job_internet {{ \\"$cgroup\\" : ${{internet[$team]:+goto }}${{internet[$team]:-accept}} }}"
    done
    [ -z "${{1:-}}" ] || [[ " $users " == *" $1 "* ]] || printf '%s chain {TABLE} user_%s\\n' add "$1" delete "$1"
}}

# Prints the chain of the jobs that only their user reaches. A user may be missing in the rules if this machine did not answer
# when they came: then no other machine reaches the job, and the jobs of others are not kept from being loaded.
accept_user() {{
    number=$(awk -v uid="$1" '$1 == uid && $2 == ":" {{ print $3 + 0; exit }}' {RULES})
    printf '%s chain {TABLE} user_%s\\n' add "$1" flush "$1"
    [ -n "$number" ] || {{
        printf 'add rule {TABLE} user_%s %s\\n' "$1" "jump known_senders" "$1" "goto refuse"
        logger -t headway "user $1 is not in {RULES}, so other machines can't reach the user's jobs here: run headway apply"
        return
    }}
    while read -r rule; do
        echo "add rule {TABLE} user_$1 $rule"
    done <<END
jump known_senders
{_ACCEPT_USER}
goto refuse
END
}}

# Loads what the command $1 prints with further words. A cgroup may end while nft reads its name, so it is tried again.
attempt() {{
    for try in 1 2 3 4 5; do
        all=$("$@" 2>&1) || {{
            said=$(tail -n 1 <<<"$all")
            return 1
        }}
        said=$(nft -f - <<<"$all" 2>&1) && return
        said="nft: $(grep -m 1 . <<<"$said")"
    done
    return 1
}}

everything() {{
    rules && jobs
}}

load() {{
    exec {{held}}>"$lock" && flock -w 60 "$held" || fail "$lock can't be locked"
    attempt everything || fail "$said"
}}

# Changes only the jobs, because the rules may name thousands of machines and users. If the rules are not there, loads all.
change() {{
    exec {{held}}>"$lock" && flock -w 60 "$held" || fail "$lock can't be locked"
    attempt jobs "${{1:-}}" || attempt everything || fail "$said"
}}

# Another machine of the host may remove an empty parent meanwhile.
make() {{
    for try in 1 2 3 4 5; do
        mkdir -p "$1" 2>/dev/null && return
    done
    mkdir -p "$1"
}}

start() {{
    [ "${{SLURM_JOB_UID:-0}}" -ge 1000 ] || return 0
    account=${{SLURM_JOB_ACCOUNT:--}}
    policy_of "$account"
    [ "${{ports[$team]}}" != all ] || [ -n "${{internet[$team]}}" ] || [ -n "${{internet[-]}}" ] || return 0
    cgroup=$(cgroup_of "$SLURM_JOB_ID") && make "$cgroups/$cgroup" || fail "its cgroup can't be made in $cgroups"
    [[ $cgroup == system.slice/* ]] || echo "$cgroups/$cgroup/cgroup.procs" >"$own/join-cgroup" || fail "$own is not writable"
    echo "$SLURM_JOB_UID $account $cgroup" >"$own/network" || fail "$own is not writable"
    # A job that is refused must not keep others from being loaded.
    (change) || {{
        rm -f "$own/network"
        exit 1
    }}
}}

end() {{
    cgroup=$(cgroup_of "$SLURM_JOB_ID") || return 0
    [ ! -e {JOB_TMP}/"$SLURM_JOB_ID"/network ] || return 0 # a later job with this number
    change "${{SLURM_JOB_UID:-}}"
    rmdir "$cgroups/$cgroup" 2>/dev/null
    # After the last job, also the folders above.
    [[ $cgroup == system.slice/* ]] || rmdir "$cgroups/${{cgroup%/*}}" "$cgroups/${{cgroup%/*/*}}" 2>/dev/null
    return 0
}}

case $1 in
load | start | end) "$1" ;;
*) fail "job-network can't do $1" ;;
esac
"""


def files(cluster: Cluster) -> dict[str, File]:
    """Returns the script of the nodes."""
    policies = {
        "-": cluster.network.policy,
        **{require_word(team.name, "teams"): team.network for team in cluster.teams},
    }
    # An account that is no team has no users that the rules know.
    who = {
        name: USER if name == "-" and policy.job_ports == TEAM else policy.job_ports
        for name, policy in policies.items()
    }
    ports = " ".join(f"[{name}]={allowed}" for name, allowed in who.items())
    internet = " ".join(f"[{name}]={_chain(name, policy)}" for name, policy in policies.items())
    return {SCRIPT: File(_SCRIPT.replace("@PORTS@", ports).replace("@INTERNET@", internet), mode=0o755)}


def _chain(name: str, policy: NetworkPolicy) -> str:
    if policy.internet is None:
        return ""
    return CLUSTER_INTERNET if name == "-" else f"{CLUSTER_INTERNET}_{name}"
