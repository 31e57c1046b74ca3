# Installs NVIDIA's driver on a machine with apt; headway.cluster.owned.gpu_drivers sends this file. Needs a POSIX shell.
# $1: what to do:
#   install BRANCH MODULES DCGM URL SUITE COMPONENTS
#           BRANCH: "580", or "" for the newest; MODULES: open or proprietary; DCGM: yes or no; URL: "" for the distribution's own
#           packages, otherwise standard input has the public key of the repository
#   finish DCGM
#           after a reboot: loads the module and starts the daemons
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
holds=/etc/headway/gpu-driver-packages # packages that are held at their version
fail() {
    echo "$1" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
apt() { apt-get -q -o DPkg::Lock::Timeout=900 -o Dpkg::Use-Pty=0 "$@"; }
candidate() { apt-cache policy "$1" | sed -n 's/^  Candidate: \([^(].*\)/\1/p'; }
# The version that NVIDIA gave to the candidate of a package: 580.95.05 of 1:580.95.05-1.
version_of() { candidate "$1" | sed 's/^[0-9]*://; s/-.*//'; }
loaded() { cat /sys/module/nvidia/version 2>/dev/null || true; }
# The version of the module that `modprobe nvidia` loads; Debian's file has another name, and "nvidia" is an install line.
on_disk() {
    for name in nvidia nvidia-current-open nvidia-current; do
        version=$(modinfo -F version "$name" 2>/dev/null) || continue
        if [ -n "$version" ]; then echo "$version" && return; fi
    done
}
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

# Reads the package sources. Only an error of the given repository counts: others may have been broken before.
read_sources() {
    errors=$(apt -o APT::Update::Error-Mode=any update 2>&1) && return
    [ -z "$url" ] || ! echo "$errors" | grep '^[EW]:' | grep -qF "${url%/}" ||
        fail "$source could not be read: $(echo "$errors" | grep '^[EW]:' | head -n 2 | tr '\n' ' ')"
}

# Debian keeps the driver in components that an installation has only on request: adds them, from the same server.
add_non_free() {
    [ "$(. /etc/os-release && echo "$ID")" = debian ] || return 0
    read_sources # apt knows only the sources whose lists it has
    [ -z "$(candidate nvidia-smi)" ] || return 0
    # shellcheck disable=SC2016
    line=$(apt-get indextargets --format '$(COMPONENT) $(REPO_URI) $(RELEASE) $(SIGNED_BY)' 'Created-By: Packages' 'Origin: Debian' |
        sed -n 's/^main //p' | head -n 1)
    [ -n "$line" ] || fail "this machine has no package sources of Debian: add them, or give gpu.repository"
    # shellcheck disable=SC2086
    set -- $line
    signed=${3:-} # the name of the field itself where the source names no key
    case $signed in /*) ;; *) signed= ;; esac
    write_source "$1" "$2" "contrib non-free non-free-firmware" "$signed"
}

# Sets `packages` to the driver's packages of this source, by the names of NVIDIA, Debian or Ubuntu, and `found` to their
# version.
choose_packages() {
    open=open
    [ "$modules" = open ] || open=
    number=${branch:-$(ubuntu_branch)}
    names="nvidia-kernel-${open:+$open-}dkms nvidia-${open:+$open-}kernel-dkms"
    ubuntu="nvidia-dkms-$number-server${open:+-$open}"
    newer="nvidia-dkms${open:+-$open} nvidia-dkms-$number${open:+-$open}"
    # A repository that the user names comes before what Ubuntu has itself.
    if [ -n "$url" ]; then names="$names $newer $ubuntu"; else names="$names $ubuntu $newer"; fi
    found= module=
    for name in $names; do
        version=$(version_of "$name")
        [ -n "$version" ] || continue
        found=$version
        case $found in "${branch:+$branch.}"*) module=$name && break ;; esac
    done
    [ -n "$found" ] || fail "$source has no driver of NVIDIA: add its repository to the machine, or give gpu.repository"
    [ -n "$module" ] || fail "$source has driver $found, not branch $branch"
    packages=$module
    case $module in
    nvidia-dkms-[0-9]*)
        of=${module#nvidia-dkms-}
        of=${of%-open}
        packages="$packages nvidia-utils-$of libnvidia-compute-$of nvidia-compute-utils-$of"
        ;;
    *) add_of_driver nvidia-driver-cuda nvidia-smi libcuda1 libnvidia-compute nvidia-utils nvidia-compute-utils nvidia-cuda-mps nvidia-persistenced ;;
    esac
    if [ "$(on_bus 0x0680)" != 0 ]; then
        before=$packages
        add_of_driver nvidia-fabricmanager "nvidia-fabricmanager-${found%%.*}"
        [ "$packages" != "$before" ] ||
            fail "$source does not have the fabric manager of driver $found, which GPUs behind NVSwitches need"
    fi
    held=$packages
    for name in nvidia-modprobe libnccl2 nvidia-container-toolkit; do
        [ -z "$(candidate $name)" ] || packages="$packages $name"
    done
    [ "$dcgm" != yes ] || add_dcgm
}

ubuntu_branch() {
    apt-cache search --names-only '^nvidia-dkms-[0-9]+-server' | sed 's/^nvidia-dkms-\([0-9]*\).*/\1/' | sort -n | tail -n 1
}

# Adds those of these packages that have exactly the driver's version.
add_of_driver() {
    for name; do
        [ "$(version_of "$name")" != "$found" ] || packages="$packages $name"
    done
}

add_dcgm() {
    for name in datacenter-gpu-manager-4-cuda13 datacenter-gpu-manager-4-cuda12 datacenter-gpu-manager; do
        if [ -n "$(candidate "$name")" ]; then
            packages="$packages $name"
            return
        fi
    done
    fail "$source does not have DCGM"
}

# Adds the headers that the module is built with, also those of other installed kernels, which a reboot may start, and of
# later ones. Fails before anything is installed if there are none of the running kernel.
add_headers() {
    kernel=$(uname -r)
    if [ ! -e "/lib/modules/$kernel/build/Makefile" ]; then
        [ -n "$(candidate "linux-headers-$kernel")" ] ||
            fail "the kernel's module can't be built: there are no headers of the running kernel $kernel in the package sources; boot a kernel of the distribution, or add the sources of this kernel"
        packages="$packages linux-headers-$kernel"
    fi
    for image in /boot/vmlinuz-*; do
        other=linux-headers-${image#/boot/vmlinuz-}
        [ ! -e "$image" ] || [ -z "$(candidate "$other")" ] || packages="$packages $other"
    done
    # The package that follows the newest kernel: linux-headers-amd64, linux-headers-generic.
    latest=linux-headers-$(echo "$kernel" | sed 's/^[0-9.]*[-+][^-]*-//')
    [ -z "$(candidate "$latest")" ] || packages="$packages $latest"
}

# Loads the module of the installed version and starts what belongs to it.
take_up() {
    wanted=$(on_disk)
    if [ -z "$wanted" ]; then
        log=$(ls -t /var/lib/dkms/nvidia*/*/build/make.log 2>/dev/null | head -n 1)
        fail "no module was built for kernel $(uname -r): see ${log:-dkms status, which says: $(dkms status 2>&1 | head -n 1)}"
    fi
    if [ -n "$(loaded)" ] && [ "$(loaded)" != "$wanted" ]; then
        for unit in nvidia-persistenced nvidia-fabricmanager nvidia-dcgm; do
            [ "$unit" != nvidia-dcgm ] || ! systemctl --quiet is-active nvidia-dcgm || dcgm=yes # it ran before
            systemctl stop "$unit" 2>/dev/null || true
        done
        for name in nvidia_uvm nvidia_peermem nvidia_drm nvidia_modeset nvidia; do
            [ ! -d "/sys/module/$name" ] || modprobe -r "$name" 2>/dev/null || reboot "the kernel holds driver $(loaded)"
        done
    fi
    if [ -d /sys/module/nouveau ]; then modprobe -r nouveau 2>/dev/null || reboot "nouveau holds the GPUs"; fi
    [ -n "$(loaded)" ] || modprobe nvidia 2>/dev/null ||
        fail "the kernel does not load driver $wanted: $(kernel_errors | sed 's/^\[[^]]*\] *//' | tr '\n' ';')"
    have nvidia-modprobe && nvidia-modprobe -u -c 0 2>/dev/null || true # makes /dev/nvidia-uvm
    modprobe nvidia-uvm 2>/dev/null || true
    units=nvidia-persistenced
    [ "$(on_bus 0x0680)" = 0 ] || units="$units nvidia-fabricmanager"
    [ "$dcgm" != yes ] || units="$units nvidia-dcgm"
    for unit in $units; do
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
        # apt refuses a repository that two sources sign with two keys.
        if grep -rlsF "${url%/}" /etc/apt/sources.list /etc/apt/sources.list.d | grep -qvF "$sources"; then
            rm -f "$sources" "$key"
        else
            write_source "$url" "$suite" "$components" "$key"
        fi
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
    errors=$(apt install --yes --no-install-recommends --allow-downgrades --allow-change-held-packages $packages 2>&1) ||
        fail "the driver could not be installed: $(echo "$errors" | grep '^E:\|^dpkg: error\|[Ee]rror' | head -n 4 | tr '\n' ' ')"
    # Automatic upgrades would replace libraries under running jobs. `headway down` releases the packages.
    # shellcheck disable=SC2086
    apt-mark hold $held >/dev/null
    mkdir -p "${holds%/*}"
    echo "$held" >"$holds"
    take_up
    ;;
finish)
    dcgm=$2
    take_up
    ;;
*) fail "gpu_driver.sh can't do $1" ;;
esac
