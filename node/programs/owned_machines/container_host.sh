# Runs Headway's node image as a system container on a host with another system; headway.cluster.owned.host_containers copies this file
# to the host and calls it. Needs a POSIX shell, tar, gzip, systemd, and podman or systemd-nspawn. $1: what to do:
#   image      prints the id of the image in the machine's root folder
#   room NEED  fails unless NEED MiB are free for a copy of the image
#   receive ID unpacks the image with this id, a tar archive with gzip on standard input, next to the present root folder
#   up ID NAME RUNTIME FOLDERS
#              starts the machine NAME from image ID; standard input: a tar archive of files to add to its root folder
#   restart    restarts the machine
#   start      runs the machine; its unit calls this
#   started    finishes a start of the machine; its unit calls this
#   stop       shuts the machine down; its unit calls this
#   leave PATHS
#              removes the machine and everything above from the host, and then PATHS
LC_ALL=C
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH
set -eu
umask 022
base=/var/lib/headway/machine
root=$base/root
unit=headway-machine.service
unit_file=/etc/systemd/system/$unit
deletion=headway-machine-deletion.service
fail() {
    echo "$1" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
v1() { [ ! -e /sys/fs/cgroup/cgroup.controllers ]; }

# Deletes the former image here and now.
delete_old() {
    systemctl stop "$deletion" 2>/dev/null || true
    rm -rf "$base/old"
}

# The folders of podman are the machine's own, so that other containers of the host are not touched.
pod() {
    runtime=
    if v1 && have runc; then runtime="--runtime runc"; fi # crun refuses a hybrid cgroup layout
    # shellcheck disable=SC2086
    set -- podman $runtime --root "$base/podman" --runroot /run/headway/podman --tmpdir /run/headway/libpod \
        --storage-driver vfs "$@"
    "$@"
}

# Prints why the machine's container did not start.
why() {
    log=$(journalctl --quiet --unit "$unit" --output cat --lines 50 2>/dev/null || true)
    echo "$log" | grep -i error | tail -n 1 | grep . || echo "$log" | tail -n 1
}

secure_boot() {
    for file in /sys/firmware/efi/efivars/SecureBoot-*; do
        [ -r "$file" ] && [ "$(od -An -t u1 -j 4 -N 1 "$file" | tr -d ' ')" = 1 ] && return
    done
    return 1
}

limit() { sed -n "s/^$1  *[^ ]*  *\([^ ]*\) .*/\1/p" /proc/self/limits; }

# Prints the folders of the host that the machine has too: all at the top, except those of the operating system.
shared_folders() {
    for folder in /*; do
        [ -d "$folder" ] && [ ! -L "$folder" ] || continue
        case $folder in
        /bin* | /boot | /dev | /etc | /lib* | /proc | /root | /run | /sbin* | /sys | /tmp | /usr | /var) continue ;;
        /snap | /lost+found | /cdrom | /efi | /afs) continue ;;
        *[!A-Za-z0-9/._-]*) continue ;; # podman and systemd-nspawn would read more than a name
        esac
        echo "$folder"
    done
}

devices() {
    for device in /dev/nvidia* /dev/nvidia-caps/* /dev/nvidia-caps-imex-channels/* /dev/infiniband/* /dev/fuse /dev/kmsg \
        /dev/nvme* /dev/loop* /dev/kfd /dev/dri/*; do
        if [ -c "$device" ] || [ -b "$device" ]; then echo "$device"; fi
    done
}

# Copies the NVIDIA driver's libraries and programs from the host into the machine. They must be of the version of the host's
# kernel module, so this is done at every start. NCCL and DCGM's client, which tests of the machine use, are copied too; DCGM's
# daemon stays on the host, where the client finds it, because the machine has the host's network.
copy_driver() {
    have nvidia-modprobe && nvidia-modprobe -u -c 0 2>/dev/null || true # makes /dev/nvidia-uvm
    to=$root/usr/lib/headway/driver
    rm -rf "$to"
    mkdir -p "$to"
    ldconfig -p | sed -n 's/^[[:space:]]*\(lib[^ ]*\) (libc6,x86-64[^)]*) => \(.*\)$/\1 \2/p' | while read -r name path; do
        case $name in
        libcuda.so* | libcudadebugger.so* | libnvcuvid.so* | libnvidia-ml.so* | libnvidia-cfg.so* | libnvidia-nvvm*.so* | \
            libnvidia-ptxjitcompiler.so* | libnvidia-gpucomp.so* | libnvidia-opencl.so* | libnvidia-encode.so* | \
            libnvidia-allocator.so* | libnvidia-nscq.so* | libnvidia-pkcs11*.so* | libnvidia-sandboxutils.so* | \
            libnccl.so* | libdcgm.so*)
            cp -L --reflink=auto "$path" "$to/$name"
            # The JIT compiler is loaded by its name with the version.
            real=$(basename "$(readlink -f "$path")")
            [ -e "$to/$real" ] || ln -s "$name" "$to/$real"
            ;;
        esac
    done
    for program in nvidia-smi nvidia-debugdump nvidia-cuda-mps-control nvidia-cuda-mps-server dcgmi; do
        if have $program; then
            cp -L --remove-destination "$(command -v $program)" "$root/usr/bin/$program"
        fi
    done
    have dcgmi || rm -f "$root/usr/bin/dcgmi" # the image has none, so it is of an earlier start
    echo /usr/lib/headway/driver >"$root/etc/ld.so.conf.d/00-headway-driver.conf"
    chroot "$root" ldconfig
}

case $1 in
image)
    cat "$base/image" 2>/dev/null || true
    ;;
room)
    mkdir -p "$base"
    chmod 0700 "$base"
    delete_old
    free=$(df -Pk "$base" | awk 'END { print int($4 / 1024) }')
    [ "$free" -ge "$2" ] || fail "$base has $free MiB of free disk space, and a copy of the node image needs $2 MiB"
    ;;
receive)
    rm -rf "$base/next" "$base/next.part"
    mkdir -p "$base/next.part"
    trap 'rm -rf "$base/next.part"' EXIT
    gzip -dc | tar -xf - -C "$base/next.part" --numeric-owner --xattrs --xattrs-include='*'
    [ -x "$base/next.part/usr/sbin/init" ] || fail "the node image arrived without /usr/sbin/init"
    # Local machines have fewer CPUs than Slurm counts, so their MPI processes yield; here they need not.
    sed -i '/^mpi_yield_when_idle\|^threads_pthreads_/d' "$base/next.part/etc/openmpi/openmpi-mca-params.conf"
    echo "$2" >"$base/next.part/usr/lib/headway/image-id"
    mv "$base/next.part" "$base/next"
    ;;
up)
    id=$2 name=$3 runtime=$4
    shift 4
    case $runtime in
    podman | systemd-nspawn) ;;
    *) fail "no runtime for containers is called '$runtime': podman or systemd-nspawn" ;;
    esac
    cat >"$base/files.tar"
    if [ "$(cat "$base/image" 2>/dev/null)" != "$id" ]; then
        [ "$(cat "$base/next/usr/lib/headway/image-id" 2>/dev/null)" = "$id" ] || fail "the image $id is not on this host"
        systemctl stop "$unit" 2>/dev/null || true
        delete_old
        rm -f "$base/image"
        [ ! -d "$root" ] || mv "$root" "$base/old"
        mv "$base/next" "$root"
        echo "$id" >"$base/image.new"
        mv "$base/image.new" "$base/image"
    fi
    [ -e "$root/etc/hosts" ] || echo '127.0.0.1 localhost' >"$root/etc/hosts"
    tar -xf "$base/files.tar" -C "$root" --no-overwrite-dir --no-same-owner
    rm "$base/files.tar"
    mkdir -p "$@" /srv
    printf 'name=%s\nruntime=%s\n' "$name" "$runtime" >"$base/settings"
    type=exec
    [ "$runtime" = podman ] || type=notify
    cat >"$unit_file.new" <<END
# Headway writes this file; headway down removes it.
[Unit]
Description=Headway machine $name
Wants=network-online.target
After=network-online.target local-fs.target remote-fs.target nvidia-persistenced.service nvidia-fabricmanager.service
[Service]
Type=$type
NotifyAccess=all
ExecStart=/bin/sh $base/host.sh start
ExecStartPost=/bin/sh $base/host.sh started
ExecStop=/bin/sh $base/host.sh stop
Delegate=yes
KillMode=mixed
TasksMax=infinity
OOMPolicy=continue
Restart=always
RestartSec=1
TimeoutStartSec=300
TimeoutStopSec=120
[Install]
WantedBy=multi-user.target
END
    mv "$unit_file.new" "$unit_file"
    systemctl daemon-reload
    systemctl --quiet enable "$unit"
    systemctl reset-failed "$unit" 2>/dev/null || true
    systemctl start "$unit" 2>/dev/null || fail "$(why)"
    # Deleting the former image takes minutes on a busy disk, so nothing waits for it.
    # If an earlier `up` began it, it goes on.
    [ ! -d "$base/old" ] || systemctl --quiet is-active "$deletion" ||
        systemd-run --quiet --collect --unit="$deletion" rm -rf "$base/old" || delete_old
    ;;
restart)
    systemctl restart "$unit"
    ;;
start)
    # shellcheck disable=SC1091
    . "$base/settings"
    if [ -e /proc/driver/nvidia/version ] || have nvidia-smi; then copy_driver; fi
    memory_kb=$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)
    # The agent says why a driver does not work by the modules for the host's kernel, and by Secure Boot.
    reads=
    [ ! -d /lib/modules ] || reads=/lib/modules
    rm -f "$root/usr/lib/headway/secure-boot"
    ! secure_boot || touch "$root/usr/lib/headway/secure-boot"
    sockets=
    for folder in /run/nvidia-persistenced /run/nvidia-fabricmanager; do [ -d "$folder" ] && sockets="$sockets $folder"; done
    if [ "$runtime" = podman ]; then
        set --
        for folder in $(shared_folders) $sockets; do set -- "$@" --volume "$folder:$folder:rslave"; done
        for folder in $reads; do set -- "$@" --volume "$folder:$folder:ro"; done
        for pair in "nofile:Max open files" "nproc:Max processes" "memlock:Max locked memory"; do
            most=$(limit "${pair#*:}")
            [ "$most" != unlimited ] || most=-1
            [ "${pair%%:*} $most" != "nofile -1" ] || most=1048576
            set -- "$@" --ulimit "${pair%%:*}=$most:$most"
        done
        if v1; then # --systemd=always would mount the host's own systemd tree there
            set -- "$@" --systemd=false --stop-signal SIGRTMIN+3 --tmpfs /run:mode=755,rw,exec,nosuid,nodev \
                --tmpfs /run/lock:mode=1777,rw,exec,nosuid,nodev --tmpfs /tmp:mode=1777,rw,exec,nosuid,nodev
        else
            set -- "$@" --systemd=always
        fi
        pod run --rm --replace --name "headway-$name" --hostname "$name" --network host --privileged --cgroupns private \
            --no-hosts --log-driver none --pids-limit -1 --shm-size "$((memory_kb / 2))k" "$@" --rootfs "$root" /sbin/init
    else
        set --
        for folder in $(shared_folders) $sockets $(devices); do set -- "$@" "--bind=$folder"; done
        for folder in $reads; do set -- "$@" "--bind-ro=$folder"; done
        SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 SYSTEMD_NSPAWN_USE_CGNS=1
        export SYSTEMD_NSPAWN_API_VFS_WRITABLE SYSTEMD_NSPAWN_USE_CGNS
        exec systemd-nspawn --quiet --keep-unit --register=no --boot --directory="$root" \
            --machine="$name" --hostname="$name" --capability=all --system-call-filter='@known' --link-journal=no \
            --resolv-conf=bind-host --timezone=off --tmpfs=/dev/shm:mode=1777,size=50% "$@"
    fi
    ;;
started)
    # shellcheck disable=SC1091
    . "$base/settings"
    if [ "$runtime" = podman ]; then
        # The unit counts as started when its program runs; the container may still fail.
        while [ "$(pod container inspect --format '{{.State.Status}}' "headway-$name" 2>/dev/null)" != running ]; do
            kill -0 "$MAINPID" 2>/dev/null || exit 1
            sleep 0.2
        done
    elif v1; then # systemd-nspawn mounts the controllers of cgroup v1 read-only, and Slurm makes cgroups there
        for status in /proc/[0-9]*/status; do
            grep -qs "^PPid:[[:space:]]*$MAINPID$" "$status" || continue
            pid=${status#/proc/}
            # shellcheck disable=SC2016
            nsenter --target "${pid%/status}" --mount -- sh -c 'for point in /sys/fs/cgroup/*; do
                if [ ! -L "$point" ]; then mount -o remount,bind,rw,nosuid,nodev,noexec "$point"; fi
            done'
        done
    fi
    ;;
stop)
    # shellcheck disable=SC1091
    . "$base/settings"
    # systemd-nspawn shuts the machine down at SIGTERM, which its unit sends; at a second one it would kill it.
    if [ "$runtime" = podman ]; then pod stop --ignore --time 60 "headway-$name"; fi
    ;;
leave)
    shift
    systemctl --quiet disable "$unit" 2>/dev/null || true
    systemctl stop "$unit" 2>/dev/null || true
    systemctl reset-failed "$unit" 2>/dev/null || true
    delete_old
    if [ -d "$base/podman" ]; then
        pod rm --force --all --time 10 >/dev/null 2>&1 || true
    fi
    # The machine's tables of nftables lie in the host's network namespace.
    for table in headway headway_ports headway_jobs; do
        if [ -x "$root/usr/sbin/nft" ]; then chroot "$root" nft delete table inet "$table" 2>/dev/null || true; fi
    done
    rm -f "$unit_file"
    systemctl daemon-reload
    ! grep -q " $base/" /proc/self/mountinfo || awk -v base="$base/" 'index($5, base) == 1 { print $5 }' /proc/self/mountinfo |
        sort -r | while read -r point; do umount -l "$point"; done
    rm -rf --one-file-system "$base" /run/headway/podman /run/headway/libpod
    rmdir /var/lib/headway /run/headway 2>/dev/null || true
    for path in "$@"; do rm -rf --one-file-system "$path"; done
    if [ -e /etc/headway/gpu-driver-packages ]; then xargs apt-mark unhold </etc/headway/gpu-driver-packages >/dev/null 2>&1 || true; fi
    rm -f /etc/headway/held-by /etc/apt/sources.list.d/headway-gpu.sources /etc/apt/keyrings/headway-gpu.asc \
        /etc/apt/preferences.d/headway-gpu /etc/headway/gpu-driver-packages
    rmdir /etc/headway 2>/dev/null || true
    ;;
*) fail "container_host.sh can't do $1" ;;
esac
