"""Commands that check a candidate configuration with the real Slurm programs before it is installed.

Slurm has no "check this file": `slurmd -C` reads next to nothing, and scontrol only finds wrong keys in slurm.conf. So
the candidate is really started: slurmd prints how it understands gres.conf and cgroup.conf, and a slurmctld with its
own empty state folder in its own network namespace starts, reads plugins, nodes, partitions and topology, and is
stopped. The copy for the trial omits what the trial can't have: accounting (the trial would register in the database),
tokens, SPANK plugins, other controllers, and log levels that would hide the message of a finished start. GPUs are
/dev/null there. The check takes 0.2 s. On 24.11 and 22.05 it found unknown keys, wrong values, missing plugins,
partitions and switches with unknown nodes, and faults in every file next to slurm.conf."""

from __future__ import annotations

_TRIAL = r"""
set -euo pipefail
work=$(mktemp -d /run/headway-trial.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir "$work/state"
for file in "$1"/*.conf; do
    sed -E -e "s#^(StateSaveLocation)=.*#\1=$work/state#I" -e "s#^(SlurmctldPidFile)=.*#\1=$work/pid#I" \
        -e '/^(AccountingStor|AuthAlt|PlugStack|Slurm(ctl)?dDebug)/Id' -e 's#^(PriorityType)=.*#\1=priority/basic#I' \
        -e "/^SlurmctldHost=/I{/^[^=]*=$(hostname)[(]/I!d}" \
        -e 's|,?GRES/[^, "]*=[^, "]*||Ig' -e "s#/dev/nvidia#$work/dev/nvidia#Ig" "$file" >"$work/${file##*/}"
done
[ ! -e "$1/job_submit.lua" ] || cp "$1/job_submit.lua" "$work/"
rm -f "$work/plugstack.conf" "$work/slurmdbd.conf"
: >"$work/log"
chown -R slurm:slurm "$work"
names() { sed -nE 's/^NodeName=([^ ]+).*/\1/Ip' "$1" | while read -r list; do
    SLURM_CONF=$work/slurm.conf scontrol show hostnames "$list" || exit 1; done; }
{ cat /etc/hosts; names "$work/slurm.conf" | sed 's/^/192.0.2.1 /'; } >"$work/hosts"
# Names lead nowhere but here: the trial runs in network and mount namespaces of its own.
ip link set lo up
ip address add 192.0.2.1/32 dev lo
mount --bind "$work/hosts" /etc/hosts
harmless='High latency|state file|Trying backup|accounting information|No association for|clustername|last_part_update|mpi/pmix'
if [ -e "$work/gres.conf" ]; then
    node=$(names "$work/gres.conf" | sed -n 1p)
    # Devices in place of GPUs and MIG instances, which the head has not.
    mkdir -p "$work/dev/nvidia-caps"
    files=$(grep -oE 'nvidia(\[[0-9,-]+\]|[0-9]+|-caps/nvidia-cap[0-9]+)' "$work/gres.conf" | sort -u)
    SLURM_CONF=$work/slurm.conf scontrol show hostnames "$(paste -sd, <<<"$files")" | sort -u |
        (cd "$work/dev" && xargs -rn 1 ln -s /dev/null)
    timeout -k 5 25 slurmd -f "$work/slurm.conf" -N "$node" -G >"$work/gres.log" 2>&1 || { cat "$work/gres.log" >&2; exit 1; }
    grep -E 'error:|fatal:' "$work/gres.log" >&2 && exit 1
fi
export SLURM_CONF=$work/slurm.conf  # job_submit.lua is read from its folder
for attempt in 1 2; do
    # A slurmctld that hangs is killed 5 s later (timeout -k holds for the signal that it passes on, too).
    timeout -k 5 30 setpriv --reuid slurm --regid slurm --clear-groups slurmctld -D -c -f "$work/slurm.conf" >"$work/log" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null && ! grep -q 'Running as primary' "$work/log"; do sleep 0.02; done
    # Its messages after the stop signal (for example that its helper process has ended) are no errors of the files.
    sed '/Running as primary/q' "$work/log" >"$work/read"
    kill "$pid" 2>/dev/null || true
    wait "$pid" || true
    # One that neither started nor named an error has hung, which says nothing of the files: another one is started.
    if grep -q 'Running as primary' "$work/read" ||
        grep -E 'error:|fatal:' "$work/read" | grep -qvE "$harmless"; then break; fi
done
grep -E 'error:|fatal:' "$work/read" | grep -vE "$harmless" >&2 && exit 1
grep -q 'Running as primary' "$work/read" || { tail -n 3 "$work/log" >&2; exit 1; }
"""


def candidate_check(folder: str) -> list[list[str]]:
    """Returns argv lists to run as root on the head. Each must end with 0; otherwise stderr says what is wrong.
    `folder` holds slurm.conf and the files next to it."""
    return [["unshare", "--net", "--mount", "--", "bash", "-c", _TRIAL, "headway-trial", folder]]


# Without a compiler of Lua slurmctld finds the fault at its start.
_LUA = """
for program in luac luac5.4 luac5.3; do
    if command -v "$program" >/dev/null; then exec "$program" -p "$1/job_submit.lua"; fi
done
"""


def lua_check(folder: str) -> list[list[str]]:
    """Returns argv lists that check the syntax of job_submit.lua in the folder, where no slurmctld can try it yet: a first
    start needs the daemons that it is started with."""
    return [["sh", "-c", _LUA, "headway-lua", folder]]
