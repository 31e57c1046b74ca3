# Prints the facts of a machine before its first set-up; headway.providers.ssh.survey_parser parses them. Needs only a shell,
# changes nothing, and skips missing facts. $1: paths to check, $2: user names, $4: uids, each separated by blanks; $3: a folder,
# which may be missing, whose file system is printed.
LC_ALL=C
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH
part() { printf '\n### %s\n' "$1"; }
have() { command -v "$1" >/dev/null 2>&1; }
first() { for file in "$@"; do [ -r "$file" ] && cat "$file" && return; done 2>/dev/null; }

part time
date +%s.%N
part system
cat /etc/os-release 2>/dev/null
part kernel
uname -r
part architecture
uname -m
part systemd
[ -d /run/systemd/system ] && echo yes || echo no
part runtimes
for program in podman runc systemd-nspawn; do have "$program" && echo "$program"; done
part cgroup
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo "v2 $(cat /sys/fs/cgroup/cgroup.controllers)"; elif [ -d /sys/fs/cgroup ]; then echo v1; fi
part selinux
first /sys/fs/selinux/enforce
part hostname
uname -n
part boot
# Containers share the boot id of their host, so the inode of a file that their own init creates is added.
echo "$(first /proc/sys/kernel/random/boot_id) $(stat -c '%i %Z' /etc/hostname 2>/dev/null) $(first /etc/machine-id)"
part memory
cat /proc/meminfo
part cpus
for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
    [ -r "$cpu/topology/core_id" ] || continue
    [ "$(first "$cpu/online")" = 0 ] && continue
    echo "${cpu##*/cpu} $(cat "$cpu/topology/physical_package_id") $(cat "$cpu/topology/core_id")"
done
part allowed
sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status
part disk
df -Pk /var | tail -n 1
part pci
for device in /sys/bus/pci/devices/*; do
    class=$(first "$device/class")
    case $class in 0x03* | 0x02* | 0x1200*) ;; *) continue ;; esac
    echo "${device##*/} $class $(first "$device/vendor") $(first "$device/device") numa=$(first "$device/numa_node") cpus=$(first "$device/local_cpulist")"
done
part nvidia
have nvidia-smi && timeout 30 nvidia-smi \
    --query-gpu=index,name,memory.total,pci.bus_id,driver_version --format=csv,noheader,nounits 2>&1
part minors
for file in /proc/driver/nvidia/gpus/*/information; do
    [ -r "$file" ] && echo "$(basename "$(dirname "$file")") $(sed -n 's/^Device Minor:[[:space:]]*//p' "$file")"
done
part driver
gpus= switches=0
for device in /sys/bus/pci/devices/*; do
    [ "$(first "$device/vendor")" = 0x10de ] || continue
    case $(first "$device/class") in 0x03*) gpus=yes ;; 0x0680*) switches=$((switches + 1)) ;; esac
done
if [ -n "$gpus" ]; then
    echo "loaded=$(first /sys/module/nvidia/version)"
    # Debian's module file has another name, and "nvidia" is an install line of modprobe.d.
    for module in nvidia nvidia-current-open nvidia-current; do
        version=$(have modinfo && modinfo -F version "$module" 2>/dev/null)
        if [ -n "$version" ]; then echo "on_disk=$version" && break; fi
    done
    library=$(ldconfig -p 2>/dev/null | sed -n 's/.*libcuda\.so\.1 .*x86-64.*=> //p' | head -n 1)
    [ -n "$library" ] && library=$(readlink -f "$library") && echo "libraries=${library##*libcuda.so.}"
    [ -d /sys/module/nouveau ] && echo nouveau=yes
    for file in /sys/firmware/efi/efivars/SecureBoot-*; do
        [ -r "$file" ] && [ "$(od -An -t u1 -j 4 -N 1 "$file" | tr -d ' ')" = 1 ] && echo secure_boot=yes
    done 2>/dev/null
    echo "nvswitches=$switches"
    have dcgmi && echo dcgm=yes
    have apt-cache && apt-cache policy nvidia-driver-cuda nvidia-smi 2>/dev/null |
        sed -n 's/^ *Candidate: \([0-9][0-9.]*\).*/offered=\1/p' | head -n 1
fi
part fabric
for port in /sys/class/infiniband/*/ports/*; do
    [ -r "$port/rate" ] || continue
    device=${port%/ports/*}
    echo "${device##*/} ${port##*/} numa=$(first "$device/device/numa_node") layer=$(first "$port/link_layer") state=$(first "$port/state" | tr ' ' '_') rate=$(first "$port/rate" | tr ' ' '_')"
done
part listening
for file in /proc/net/tcp /proc/net/tcp6; do
    while read -r _ local _ state _; do [ "$state" = 0A ] && echo "${local##*:}"; done <"$file"
done 2>/dev/null
part mounts
for path in $1; do
    [ -d "$path" ] || continue
    echo "$path $(stat -c '%i %Z %s' "$path") $(while read -r _ _ _ _ where _ rest; do
        [ "$where" = "$path" ] && echo "${rest#*- }"
    done </proc/self/mountinfo | tail -n 1)"
done
part state
at=$3
while [ -n "$at" ] && [ "$at" != / ] && ! timeout 20 [ -d "$at" ]; do at=${at%/*}; done
if [ -n "$3" ]; then
    where=$(timeout 20 stat -c %m "${at:-/}")
    [ -n "$where" ] && echo "$where $(stat -c %i "${where:-/}") $(while read -r _ _ _ _ point _ rest; do
        [ "$point" = "$where" ] && echo "${rest#*- }"
    done </proc/self/mountinfo | tail -n 1)"
fi
part addresses
grep -B 1 '/32 host LOCAL' /proc/net/fib_trie 2>/dev/null | sed -n 's/^ *|-- //p' | sort -u
part users
for name in $2; do getent passwd "$name"; done 2>/dev/null
part homes
for path in $1; do (cd "$path" && timeout 30 stat -c "%u $path/%n" -- $2); done 2>/dev/null
part owners
for uid in $4; do getent passwd "$uid"; done 2>/dev/null
part filesystems
cat /proc/filesystems
part modules
for module in nfsd nfs nfsv4 nf_tables; do
    { grep -q "^$module " /proc/modules || { have modinfo && modinfo "$module" >/dev/null 2>&1; }; } 2>/dev/null && echo "$module"
done
grep -qs 'nf_tables\|nft_' /proc/kallsyms && echo nf_tables
part packages
# shellcheck disable=SC2016
have dpkg-query && dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n'
part units
for unit in slurmctld slurmd slurmdbd slurmrestd munge mariadb mysql prometheus headway-machine; do
    have systemctl && [ "$(systemctl is-active "$unit.service" 2>/dev/null)" = active ] && echo "$unit"
done
part slurmconf
sed -n 's/^[[:space:]]*ClusterName[[:space:]]*=[[:space:]]*//Ip' /etc/slurm/slurm.conf /etc/slurm-llnl/slurm.conf 2>/dev/null | head -n 1
part amended
for package in munge slurmctld slurmd slurm-wlm-basic-plugins slurmdbd; do
    file=/usr/share/doc/$package/changelog.Debian.gz
    [ -r "$file" ] && zcat "$file" 2>/dev/null | grep -o 'CVE-[0-9]*-[0-9]*'
done | sort -u
part held
first /etc/headway/held-by
part from
# sudo removes SSH_CONNECTION; a parent process up to the session still has it.
from=${SSH_CONNECTION:-} above=$PPID
while [ -z "$from" ] && [ "${above:-0}" -gt 1 ]; do
    from=$(tr '\0' '\n' <"/proc/$above/environ" 2>/dev/null | sed -n 's/^SSH_CONNECTION=//p' | head -n 1)
    above=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$above/status" 2>/dev/null)
done
echo "${from%% *}"
part time
date +%s.%N
part end
