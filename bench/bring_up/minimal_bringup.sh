#!/usr/bin/env bash
# The least that a person could do by hand: five containers of a node image, Slurm with accounting and GPUs in them, and a
# four-node step that printed its GPUs. It is what bringup.py compares `headway apply` with.
#   usage: minimal_bringup.sh IMAGE           environment: PODMAN (command, with global options), LIMITS (options of podman run)
# Prints "seconds: X", from the first container's start to the step's output; removes everything it made.
set -euo pipefail
image=${1:?usage: minimal_bringup.sh IMAGE}
read -ra podman <<<"${PODMAN:-podman}"
read -ra limits <<<"${LIMITS:-}"
tag=headway-floor-$$
LIMIT_S=120 # the longest wait for one thing; a wait that lasts longer ends the run with an error
controller=$tag-c
workers=("$tag"-w1 "$tag"-w2 "$tag"-w3 "$tag"-w4)
all=("$controller" "${workers[@]}")
files=$(mktemp -d)

remove_all() {
  "${podman[@]}" rm --force --time 0 "${all[@]}" &>/dev/null || true
  "${podman[@]}" network rm --force "$tag" &>/dev/null || true
  rm -rf "$files"
}
trap remove_all EXIT

fail() { echo "floor: $*" >&2; exit 1; }

inside() { local machine=$1; shift; "${podman[@]}" exec --interactive "$machine" "$@"; }

each() { # each FUNCTION MACHINE...: on all of them at once; fails when one fails
  local work=$1 pids=() pid; shift
  for machine in "$@"; do "$work" "$machine" & pids+=($!); done
  for pid in "${pids[@]}"; do wait "$pid"; done
}

boot() {
  "${podman[@]}" run --detach --systemd=always --privileged "${limits[@]}" --label headway=1 \
    --network "$tag" --name "$1" --hostname "$1" "$image" /sbin/init >/dev/null
  local state= ends=$((SECONDS + LIMIT_S))
  until [[ $state == running || $state == degraded ]]; do
    ((SECONDS < ends)) || fail "$1 has not booted after $LIMIT_S s (systemd: ${state:-no answer})"
    state=$(inside "$1" systemctl is-system-running </dev/null 2>/dev/null || true)
  done
}

write_files() {
  local list; list=$(IFS=,; echo "${workers[*]}")
  head --bytes 1024 /dev/urandom >"$files/munge.key"
  cat >"$files/slurm.conf" <<CONF
ClusterName=floor
SlurmctldHost=$controller
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/state
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldParameters=enable_configless
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
PriorityType=priority/multifactor
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=$controller
AccountingStorageTRES=gres/gpu
GresTypes=gpu
MpiDefault=none
NodeName=$list CPUs=128 RealMemory=20000 Gres=gpu:h100:8
PartitionName=all Nodes=ALL Default=YES
CONF
  cat >"$files/slurmdbd.conf" <<CONF
DbdHost=$controller
AuthType=auth/munge
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=floor
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
CONF
  echo "NodeName=$list Name=gpu Type=h100 File=/dev/nvidia[0-7] Flags=nvidia_gpu_env" >"$files/gres.conf"
  printf '%s\n' CgroupPlugin=autodetect ConstrainDevices=yes ConstrainRAMSpace=yes >"$files/cgroup.conf"
}

collect_address() {
  local address
  address=$("${podman[@]}" inspect --format "{{(index .NetworkSettings.Networks \"$tag\").IPAddress}}" "$1")
  echo "$address $1" >>"$files/hosts"
}

introduce() { # names of all machines, no nameserver that is not there, one MUNGE key
  tar --create --directory "$files" hosts munge.key | inside "$1" sh -ec '
    mkdir -p /tmp/floor /var/log/slurm /var/lib/slurm/state /var/lib/slurm/slurmd /etc/slurm
    tar --extract --directory /tmp/floor
    cat /tmp/floor/hosts >>/etc/hosts
    : >/etc/resolv.conf
    chown slurm: /var/log/slurm /var/lib/slurm/state
    install -m 400 -o munge -g munge /tmp/floor/munge.key /etc/munge/munge.key
    systemctl restart munge'
}

start_controller() {
  tar --create --directory "$files" slurm.conf slurmdbd.conf gres.conf cgroup.conf | inside "$controller" sh -ec '
    tar --extract --directory /etc/slurm
    chown slurm: /etc/slurm/slurmdbd.conf
    chmod 600 /etc/slurm/slurmdbd.conf
    systemctl start mariadb
    mariadb -e "create user slurm@localhost identified by \"floor\"; grant all on slurm_acct_db.* to slurm@localhost"
    ends=$(($(date +%s) + $1))
    wait_for() { # wait_for WHAT COMMAND...: until the command succeeds
      what=$1; shift
      until "$@"; do
        [ "$(date +%s)" -lt "$ends" ] || { echo "floor: $what" >&2; exit 1; }
        sleep 0.1
      done
    }
    # The first start on a fresh MariaDB 11.8.9 can end with error 5027; the next one works.
    dbd_started() {
      systemctl is-active --quiet slurmdbd || { systemctl reset-failed slurmdbd; systemctl start slurmdbd; }
      grep -qs "slurmdbd version" /var/log/slurm/slurmdbd.log
    }
    controller_up() { scontrol ping | grep -q UP; }
    systemctl start slurmdbd
    wait_for "slurmdbd does not start" dbd_started
    systemctl start slurmctld
    wait_for "slurmctld does not answer" controller_up' sh "$LIMIT_S"
}

start_worker() {
  inside "$1" sh -ec '
    for gpu in 0 1 2 3 4 5 6 7; do mknod --mode 666 /dev/nvidia$gpu c 195 $gpu; done
    echo "SLURMD_OPTIONS=\"--conf-server $1\"" >/etc/default/slurmd
    mkdir -p /etc/systemd/system/slurmd.service.d
    printf "[Unit]\nConditionPathExists=\n" >/etc/systemd/system/slurmd.service.d/floor.conf
    systemctl daemon-reload
    systemctl start slurmd' sh "$controller" </dev/null
}

gpu_step() {
  inside "$controller" sh -c 'cd /tmp && srun --nodes=4 --gres=gpu:8 --mem=100 printenv CUDA_VISIBLE_DEVICES' \
    </dev/null 2>/dev/null
}

"${podman[@]}" network create --label headway=1 "$tag" >/dev/null
write_files
began=$EPOCHREALTIME
each boot "${all[@]}"
for machine in "${all[@]}"; do collect_address "$machine"; done
each introduce "${all[@]}"
start_controller
each start_worker "${workers[@]}"
ends=$((SECONDS + LIMIT_S))
until seen=$(gpu_step); do
  ((SECONDS < ends)) || fail "the step on four nodes has not run after $LIMIT_S s"
  sleep 0.1
done
ended=$EPOCHREALTIME
[[ $(grep -cx '0,1,2,3,4,5,6,7' <<<"$seen") == 4 ]] || { echo "floor: the step saw: $seen" >&2; exit 1; }
awk -v began="$began" -v ended="$ended" 'BEGIN { printf "seconds: %.2f\n", ended - began }'
