"""Renders the script with which prolog and epilog start and end the control daemons of NVIDIA's MPS, on nodes whose GPUs
jobs share by MPS."""

from __future__ import annotations

from headway.domain.cluster import Group
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.render.escaping import MARK
from headway.render.machine_paths import JOB_SHM, JOB_TMP

SCRIPT = "/etc/headway/mps"
PROGRAM = "nvidia-cuda-mps-control"
SIMULATED_PROGRAM = "/usr/lib/headway/simulated-mps-control"  # of node/image
MPS = "/run/headway/mps"  # a folder for each control daemon: its sockets and logs

# Prolog and epilog put their variable `own`, the job's folder, in the environment.
_SCRIPT = f"""\
#!/bin/bash
# {MARK}
# Prolog and epilog run this as root: `start` before the first step of a job, `end` after the last.
# A control daemon of MPS serves the programs of one user at a time and lets those of others wait. So each user has a daemon
# of their own on a GPU. It starts with the user's first job there, and ends after the last. Other users can't reach it.
set -u
program=@PROGRAM@
exec {{lock}}>{MPS}.lock && flock -w 60 "$lock" || exit 1

# Sends a command to the control daemon with the folder $1, as its user.
tell() {{
    setpriv --reuid "$(stat -c %u "$1")" --regid "$(stat -c %g "$1")" --clear-groups \\
        env CUDA_MPS_PIPE_DIRECTORY="$1" timeout 5 "$program" <<<"$2"
}}

fail() {{
    echo "headway: $1" >&2
    exit 1
}}

start() {{
    percentage=${{CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-0}} gpu=${{SLURM_JOB_GPUS:-${{CUDA_VISIBLE_DEVICES:-}}}}
    [ "$percentage" != 0 ] || exit 0 # a job with whole GPUs, or without any
    [[ $gpu =~ ^[0-9]+$ ]] || fail "job $SLURM_JOB_ID shares GPUs '$gpu' by MPS; one is expected"
    name=$SLURM_JOB_UID-$gpu unit=headway-mps-$SLURM_JOB_UID-$gpu
    pipe={MPS}/$name shm={JOB_SHM}/mps-$name
    group=${{SLURM_JOB_GID:-$(id -g "$SLURM_JOB_UID")}}
    mkdir -p -m 0711 {MPS} && install -d -m 0700 -o "$SLURM_JOB_UID" -g "$group" "$pipe" && install -d -m 1777 "$shm" || exit 1
    # private_tmp.so sets CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY to this folder in the job's tasks.
    echo "$pipe" >"$own/mps" || exit 1
    # Programs and daemon exchange data in /dev/shm, so the user's jobs on this GPU have one in common.
    alone=$(readlink "$own/shm")
    ln -sfnT "$shm" "$own/shm" && rmdir "$alone" || exit 1
    ! systemctl --quiet is-active "$unit" || exit 0
    command -v "$program" >/dev/null ||
        fail "$program is missing on $HOSTNAME: install it (in Debian the package nvidia-cuda-mps), or remove mps from the group"
    # Its server runs as the user and outside of the job's cgroup, so it may open no other GPU either.
    devices=()
    for device in /dev/nvidia"$gpu" /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools /dev/nvidia-modeset; do
        [ ! -e "$device" ] || devices+=(--property "DeviceAllow=$device rw")
    done
    # By its UUID, because the numbers of GPUs depend on which of them a process may open.
    uuid=$(awk -F ': *[ \\t]*' -v gpu="$gpu" '
        $1 == "GPU UUID" {{ uuid = $2 }}
        $1 == "Device Minor" && $2 == gpu {{ print uuid }}
    ' /proc/driver/nvidia/gpus/*/information 2>/dev/null)
    systemctl reset-failed "$unit" 2>/dev/null
    systemd-run --quiet --unit "$unit" --uid "$SLURM_JOB_UID" --gid "$group" --service-type=exec \\
        --description "MPS of user $SLURM_JOB_UID on GPU $gpu" --property DevicePolicy=closed "${{devices[@]}}" \\
        --property "BindPaths=$shm:/dev/shm" --property NoNewPrivileges=yes --property LimitMEMLOCK=infinity \\
        --property TimeoutStopSec=5 --setenv "CUDA_VISIBLE_DEVICES=${{uuid:-0}}" \\
        --setenv "CUDA_MPS_PIPE_DIRECTORY=$pipe" --setenv "CUDA_MPS_LOG_DIRECTORY=$pipe" \\
        "$(command -v "$program")" -f || fail "the unit $unit can't be started"
    for ((n = 0; n < 100; n++)); do
        ! tell "$pipe" get_server_list >/dev/null 2>&1 || exit 0
        systemctl --quiet is-active "$unit" || break
        sleep 0.1
    done
    ends=$(journalctl --quiet --unit "$unit" --output cat --lines 5 | grep -v "^$unit" | tail -n 1)
    fail "$program does not start for GPU $gpu: see journalctl -u $unit, which ends with: $ends"
}}

# Ends the daemons that no job on this node uses any more.
end() {{
    for pipe in {MPS}/*; do
        [ -d "$pipe" ] && ! grep -qsxF "$pipe" {JOB_TMP}/*/mps || continue
        name=${{pipe##*/}}
        ! systemctl --quiet is-active "headway-mps-$name" || tell "$pipe" quit >/dev/null 2>&1
        systemctl stop "headway-mps-$name" 2>/dev/null
        rm -rf --one-file-system "$pipe" "{JOB_SHM}/mps-$name"
    done
}}

case $1 in
start) start ;;
end) end ;;
*) fail "mps can't do $1" ;;
esac
"""


def files(site: Site, group: Group) -> dict[str, File]:
    """Returns the script, {} if no node of the group shares its GPUs by MPS."""
    if not has_mps(site, group):
        return {}
    program = SIMULATED_PROGRAM if site.simulated_gpus else PROGRAM
    return {SCRIPT: File(_SCRIPT.replace("@PROGRAM@", program), mode=0o755)}


def has_mps(site: Site, group: Group) -> bool:
    """Returns whether a node of the group shares its GPUs by MPS."""
    return group.parts.mps or any(site.parts_now[name].mps for name in group.slots if name in site.parts_now)
