#!/bin/sh
# Runs on the building host after after_packages.sh, and after the files of rootfs/ were copied. $1: the root folder of the image.
# A change here or in rootfs/ repeats only this script; the packages are not installed again.
set -eu
umask 022
root=$1
in_root() { chroot "$root" "$@"; }

# `headway apply` starts these units after it has written their configuration. The image must not start them.
for unit in slurmd slurmctld slurmdbd slurmrestd prometheus prometheus-alertmanager haproxy mariadb nfs-server nfs-blkmap nftables; do
    in_root systemctl disable "$unit.service" 2>/dev/null || true
done
# Only a head that exports folders needs NFS, and version 4 needs no portmapper.
in_root systemctl disable rpcbind.service rpcbind.socket nfs-client.target 2>/dev/null || true
in_root systemctl enable ssh.service munge.service
in_root systemctl set-default multi-user.target
if [ "$(in_root systemctl --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p')" -ge 258 ]; then
    ln -sf ../lib/headway/init "$root/usr/sbin/init"
fi

# Units that a container does not need or may not run (udev and sysctl would change the host), and units that slow the boot.
for unit in \
    systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udev-trigger.service \
    systemd-udev-settle.service systemd-sysctl.service systemd-modules-load.service systemd-binfmt.service \
    proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount kmod-static-nodes.service systemd-hwdb-update.service \
    systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service systemd-resolved.service \
    systemd-timesyncd.service systemd-random-seed.service systemd-remount-fs.service systemd-machine-id-commit.service \
    systemd-firstboot.service systemd-update-utmp.service systemd-update-utmp-runlevel.service ldconfig.service \
    systemd-journal-flush.service systemd-journal-catalog-update.service systemd-update-done.service \
    systemd-pstore.service systemd-network-generator.service systemd-tpm2-setup.service systemd-tpm2-setup-early.service \
    systemd-pcrextend.socket systemd-pcrlock.socket systemd-mountfsd.socket systemd-nsresourced.socket systemd-hostnamed.socket systemd-creds.socket systemd-sysext.socket modprobe@.service \
    systemd-ask-password-console.path systemd-ask-password-wall.path \
    dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
    sys-fs-fuse-connections.mount getty.target getty-static.service console-getty.service getty@tty1.service \
    e2scrub_all.timer e2scrub_reap.service fstrim.timer apt-daily.timer apt-daily-upgrade.timer man-db.timer \
    dpkg-db-backup.timer prometheus-node-exporter.service sysstat.service mdmonitor.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
mkdir -p "$root/etc/systemd/system-generators"
for generator in systemd-ssh-generator systemd-gpt-auto-generator systemd-hibernate-resume-generator \
    systemd-tpm2-generator systemd-getty-generator systemd-fstab-generator; do
    ln -sf /dev/null "$root/etc/systemd/system-generators/$generator"
done

mkdir -p "$root/etc/headway/boot" "$root/srv/headway" "$root/srv/headway-state" "$root/var/lib/extrausers"

# slurmrestd refuses to run as root or SlurmUser.
in_root useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin slurmrestd

# Local machines have far more CPUs in Slurm than the host has. MPI processes poll for messages without pause, so the
# daemons that they wait for would hardly run: they must yield the CPU. They yield by nanosleep and not by sched_yield, of
# which they make 50,000 calls a second: on Linux 6.18 a few such processes blocked the host for minutes ("workqueue lockup"
# in its log).
# UCX is required: with ob1, a rank that Slurm's PMIx releases early from the barrier at the end of MPI_Init kills the waiting
# ranks with its first message (open-mpi/ompi issue 12495; one run in 40 when all cores are busy).
# Debian's file does not end with a line break, and excludes UCX for one-sided communication (osc), which is set here too.
cat >>"$root/etc/openmpi/openmpi-mca-params.conf" <<'END'

mpi_yield_when_idle = 1
threads_pthreads_yield_strategy = nanosleep
threads_pthreads_nanosleep_time = 100000
pml = ucx
osc = ucx,sm
opal_common_ucx_tls = any
opal_common_ucx_devices = any
END

# Every remote command of Headway signs in as root. Such a login needs no systemd session and no user manager.
sed -i -E 's/^session[[:space:]].*pam_systemd\.so.*$/session [success=1 default=ignore] pam_succeed_if.so quiet uid = 0\n&/' \
    "$root/etc/pam.d/common-session"

# The parts that machines without a node image also get.
parts=$root/usr/lib/headway/parts
mkdir -p "$parts"
cp -r "$(dirname "$0")"/spank "$(dirname "$0")"/pam "$(dirname "$0")"/gpu "$(dirname "$0")"/bin "$(dirname "$0")"/*.sh "$parts/"
cp -r "$root/usr/lib/headway/container" "$parts/"
in_root sh /usr/lib/headway/parts/build_parts.sh /
rm -r "$parts"
