# On the head of a cluster: makes it one of COUNT real slurmd, all of them on this machine, and puts JOBS jobs in its queue.
#   thousand_nodes.sh COUNT JOBS USER...
# Each slurmd has a port and a spool of its own. Jobs want GPU_NODES nodes each, so some run and the rest waits.
set -euo pipefail
count=$1 jobs=$2
shift 2
conf=/etc/slurm/slurm.conf
address=$(sed -n 's/^SlurmctldHost=.*(\(.*\))/\1/p' $conf)
last=$(printf %04d "$count")

systemctl stop slurmctld
for pids in /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max; do
    if [ -w $pids ]; then echo max >$pids 2>/dev/null || true; fi
done
# What needs the machine's own hierarchy, a prolog or a topology is left out: a thousand nodes share one machine.
sed -i -e '/^\(PrologFlags\|Prolog\|Epilog\|TopologyPlugin\|TreeWidth\)=/d' \
    -e 's|^ProctrackType=.*|ProctrackType=proctrack/linuxproc|' -e 's|^TaskPlugin=.*|TaskPlugin=task/none|' \
    -e 's|^JobAcctGatherType=.*|JobAcctGatherType=jobacct_gather/none|' -e 's|^TmpFS=.*|TmpFS=/tmp|' \
    -e 's|^SlurmdSpoolDir=.*|SlurmdSpoolDir=/var/spool/slurmd-%n|' -e 's|^SlurmdPidFile=.*|SlurmdPidFile=/run/slurmd-%n.pid|' \
    $conf
{
    echo "TreeWidth=64"
    echo "SlurmdLogFile=/var/log/slurmd-%n.log"
    echo "SlurmdDebug=error"
    echo "NodeName=big[0001-$last] NodeHostname=$(hostname) NodeAddr=$address Port=[20001-$((20000 + count))]" \
        "CPUs=192 RealMemory=2097152 Gres=gpu:h100:8 State=UNKNOWN"
} >>$conf
mv /etc/slurm/topology.conf /etc/slurm/topology.off 2>/dev/null || true
for gpu in 0 1 2 3 4 5 6 7; do [ -e /dev/nvidia$gpu ] || mknod -m 666 /dev/nvidia$gpu c 195 $gpu; done
echo "NodeName=big[0001-$last] Name=gpu Type=h100 File=/dev/nvidia[0-7] Flags=nvidia_gpu_env" >>/etc/slurm/gres.conf
systemctl start slurmctld
limit_s=600 # the longest wait for one thing
SECONDS=0
until scontrol ping 2>/dev/null | grep -q UP; do
    ((SECONDS < limit_s)) || { echo "slurmctld does not answer after $limit_s s" >&2; exit 1; }
    sleep 0.2
done

SECONDS=0
seq -f 'big%04g' 1 "$count" | xargs -P 4 -I{} sh -c 'mkdir -p /var/spool/slurmd-{} && slurmd -N {} -f /etc/slurm/slurm.conf'
until [ "$(sinfo -h -N -t idle -o %N | grep -c '^big')" -eq "$count" ]; do
    ((SECONDS < limit_s)) || { echo "not all $count slurmd are idle after $limit_s s" >&2; exit 1; }
    sleep 1
done
echo "slurmd: $count idle after $SECONDS s"

SECONDS=0
share=$((jobs / $#)) submitting=()
for user in "$@"; do
    setpriv --reuid="$user" --regid="$user" --init-groups bash -c '
        cd /tmp
        for ((n = 0; n < '"$share"'; n++)); do
            sbatch --parsable --output=/dev/null --job-name="train-$((n % 40))" --nodes=$((n % 4 + 4)) --gpus-per-node=8 \
                --time=$((n % 20 + 4)):00:00 --wrap "sleep 86400" >/dev/null || exit 1
        done' &
    submitting+=($!)
done
for one in "${submitting[@]}"; do wait "$one"; done
echo "jobs: $((share * $#)) submitted in $SECONDS s"
