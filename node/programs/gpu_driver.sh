# Installs NVIDIA's driver on a machine with apt; headway.cluster.owned.gpu_drivers sends this file. Needs a POSIX shell.
# $1: what to do:
#   install BRANCH MODULES DCGM URL SUITE COMPONENTS
#           BRANCH: "580", or "" for the newest; MODULES: open or proprietary; DCGM: yes or no; URL: "" for the distribution's own
#           packages, otherwise standard input has the public key of the repository
#   finish  after a reboot: loads the module and starts the daemons
# The last line of the output is "ready VERSION GPUS" or "reboot WHY". A failure prints one sentence to standard error.
LC_ALL=C
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l
export LC_ALL PATH DEBIAN_FRONTEND NEEDRESTART_MODE
set -eu
umask 022
sources=/etc/apt/sources.list.d/headway-gpu.sources
key=/etc/apt/keyrings/headway-gpu.asc
pins=/etc/apt/preferences.d/headway-gpu
fail() {
    echo "$1" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
apt() { apt-get -q -o DPkg::Lock::Timeout=900 -o Dpkg::Use-Pty=0 "$@"; }
candidate() { apt-cache policy "$1" | sed -n 's/^  Candidate: \([^(].*\)/\1/p'; }
loaded() { cat /sys/module/nvidia/version 2>/dev/null || true; }
on_disk() { modinfo -F version nvidia 2>/dev/null || true; }
kernel_errors() { dmesg 2>/dev/null | grep -i 'nvidia\|NVRM\|module verification\|key was rejected' | tail -n 3; }

# Prints how many NVIDIA devices of a PCI class ("0x03": GPUs, "0x0680": NVSwitches) are on the bus.
on_bus() {
    count=0
    for device in /sys/bus/pci/devices/*; do
        [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
        case $(cat "$device/class") in "$1"*) count=$((count + 1)) ;; esac
    done
    echo $count
}

# Writes a source of packages: URL SUITE COMPONENTS KEY.
write_source() {
    {
        echo "# Headway writes this file; headway down removes it."
        printf 'Types: deb\nURIs: %s\nSuites: %s\n' "$1" "$2"
        [ -z "$3" ] || echo "Components: $3"
        [ -z "$4" ] || echo "Signed-By: $4"
    } >"$sources"
}

read_sources() {
    errors=$(apt -o APT::Update::Error-Mode=any update 2>&1) ||
        fail "$source could not be read: $(echo "$errors" | grep '^[EW]:' | head -n 2 | tr '\n' ' ')"
}

# Debian keeps the driver in components that an installation has only on request: adds them, from the same server.
add_non_free() {
    [ "$(. /etc/os-release && echo "$ID")" = debian ] || return 0
    read_sources # apt knows only the sources whose lists it has
    [ -z "$(candidate nvidia-smi)" ] || return 0
    # shellcheck disable=SC2016
    line=$(apt-get indextargets --format '$(COMPONENT) $(REPO_URI) $(RELEASE) $(SIGNED_BY)' 'Created-By: Packages' |
        sed -n 's/^main //p' | head -n 1)
    [ -n "$line" ] || fail "this machine has no package sources of Debian: add them, or give gpu.repository"
    # shellcheck disable=SC2086
    set -- $line
    signed=${3:-} # the name of the field itself where the source names no key
    case $signed in /*) ;; *) signed= ;; esac
    write_source "$1" "$2" "contrib non-free non-free-firmware" "$signed"
}

# Sets `packages` to the driver's packages of this source: NVIDIA's, Debian's or Ubuntu's names.
choose_packages() {
    open=open
    [ "$modules" = open ] || open=
    module=
    for name in "nvidia-kernel-${open:+$open-}dkms" "nvidia-${open:+$open-}kernel-dkms" \
        "nvidia-dkms-${branch:-$(ubuntu_branch)}-server${open:+-$open}" "nvidia-dkms-${branch:-$(ubuntu_branch)}${open:+-$open}"; do
        version=$(candidate "$name")
        [ -n "$version" ] || continue
        found=${version#*:}
        found=${found%%-*}
        case $found in "${branch:+$branch.}"*) module=$name && break ;; esac
    done
    [ -n "${found:-}" ] || fail "$source has no driver of NVIDIA: add its repository to the machine, or give gpu.repository"
    [ -n "$module" ] || fail "$source has driver $found, not branch $branch"
    case $module in
    nvidia-dkms-*)
        of=${module#nvidia-dkms-}
        of=${of%-open}
        packages="$module nvidia-utils-$of libnvidia-compute-$of nvidia-compute-utils-$of"
        ;;
    *)
        if [ -n "$(candidate nvidia-driver-cuda)" ]; then
            packages="$module nvidia-driver-cuda"
        else
            packages="$module nvidia-smi libcuda1 nvidia-modprobe nvidia-cuda-mps"
        fi
        packages="$packages nvidia-persistenced"
        ;;
    esac
    for name in libnccl2 nvidia-container-toolkit; do
        [ -z "$(candidate $name)" ] || packages="$packages $name"
    done
    if [ "$(on_bus 0x0680)" != 0 ]; then
        add_one "the fabric manager, which GPUs behind NVSwitches need" nvidia-fabricmanager "nvidia-fabricmanager-${found%%.*}"
    fi
    [ "$dcgm" != yes ] || add_one DCGM datacenter-gpu-manager-4-cuda13 datacenter-gpu-manager-4-cuda12 datacenter-gpu-manager
}

ubuntu_branch() {
    apt-cache search --names-only '^nvidia-dkms-[0-9]+-server' | sed 's/^nvidia-dkms-\([0-9]*\).*/\1/' | sort -n | tail -n 1
}

# Adds the first of these packages that exists: WHAT PACKAGE...
add_one() {
    what=$1
    shift
    for name; do
        if [ -n "$(candidate "$name")" ]; then
            packages="$packages $name"
            return
        fi
    done
    fail "$source does not have $what"
}

# Adds the headers that the module is built with, or fails before anything is installed.
add_headers() {
    [ ! -e "/lib/modules/$(uname -r)/build/Makefile" ] || return 0
    headers=linux-headers-$(uname -r)
    [ -n "$(candidate "$headers")" ] ||
        fail "the kernel's module can't be built: there are no headers of the running kernel $(uname -r) in the package sources; boot a kernel of the distribution, or add the sources of this kernel"
    packages="$packages $headers"
}

# Loads the module of the installed version and starts what belongs to it.
take_up() {
    wanted=$(on_disk)
    if [ -z "$wanted" ]; then
        log=$(ls -t /var/lib/dkms/nvidia*/*/build/make.log 2>/dev/null | head -n 1)
        fail "no module was built for kernel $(uname -r): see ${log:-dkms status, which says: $(dkms status 2>&1 | head -n 1)}"
    fi
    if [ -n "$(loaded)" ] && [ "$(loaded)" != "$wanted" ]; then
        systemctl stop nvidia-persistenced nvidia-fabricmanager nvidia-dcgm 2>/dev/null || true
        for name in nvidia_uvm nvidia_peermem nvidia_drm nvidia_modeset nvidia; do
            [ ! -d "/sys/module/$name" ] || modprobe -r "$name" 2>/dev/null || reboot "the kernel holds driver $(loaded)"
        done
    fi
    if [ -d /sys/module/nouveau ]; then modprobe -r nouveau 2>/dev/null || reboot "nouveau holds the GPUs"; fi
    [ -n "$(loaded)" ] || modprobe nvidia 2>/dev/null ||
        fail "the kernel does not load driver $wanted: $(kernel_errors | sed 's/^\[[^]]*\] *//' | tr '\n' ';')"
    have nvidia-modprobe && nvidia-modprobe -u -c 0 2>/dev/null || true # makes /dev/nvidia-uvm
    for unit in nvidia-persistenced nvidia-fabricmanager nvidia-dcgm; do
        [ ! -e "/usr/lib/systemd/system/$unit.service" ] && [ ! -e "/lib/systemd/system/$unit.service" ] && continue
        systemctl --quiet enable "$unit" 2>/dev/null || true # that of Debian is static
        systemctl restart "$unit" || fail "$unit does not start: $(systemctl status --no-pager --lines 3 "$unit" 2>&1 | tail -n 3 | tr '\n' ';')"
    done
    if have nvidia-ctk; then nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml >/dev/null 2>&1 || true; fi
    gpus=$(on_bus 0x03)
    seen=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | grep -c '^[0-9]' || true)
    [ "$seen" = "$gpus" ] || fail "driver $(loaded) finds $seen of the $gpus GPUs on the bus: $(kernel_errors | tr '\n' ';')"
    echo "ready $(loaded) $gpus"
}

reboot() {
    echo "reboot $1"
    exit 0
}

case $1 in
install)
    branch=$2 modules=$3 dcgm=$4 url=$5 suite=$6 components=$7
    have apt-get || fail "there is no apt-get: install the driver yourself, and leave gpu: {driver: install} out"
    there=yes
    [ -e "$sources" ] || [ -e "$pins" ] || there=
    # Until packages are installed, a failure leaves nothing on the machine.
    [ -n "$there" ] || trap 'rm -f "$sources" "$key" "$pins"' EXIT
    source=${url:-"the distribution"}
    mkdir -p "${key%/*}"
    if [ -n "$url" ]; then
        cat >"$key"
        write_source "$url" "$suite" "$components" "$key"
    else
        add_non_free
    fi
    rm -f "$pins"
    [ -z "$branch" ] || printf 'Package: *nvidia* libcuda1 libcudadebugger1 libnv*\nPin: version %s.*\nPin-Priority: 1001\n' "$branch" >"$pins"
    read_sources
    choose_packages
    add_headers
    trap - EXIT
    # shellcheck disable=SC2086
    errors=$(apt install --yes --no-install-recommends --allow-downgrades $packages 2>&1) ||
        fail "the driver could not be installed: $(echo "$errors" | grep '^E:\|^dpkg: error\|[Ee]rror' | head -n 4 | tr '\n' ' ')"
    take_up
    ;;
finish)
    take_up
    ;;
*) fail "gpu_driver.sh can't do $1" ;;
esac
