#!/bin/sh
# Runs on the building host over the base image and the files of rootfs/; $1 is the root folder of the image to be.
# Cheap to repeat: a change here or in rootfs/ does not install the packages again.
set -eu
umask 022
root=$1
in_root() { chroot "$root" "$@"; }

# Started by `headway apply` when their configuration is there, never by the image.
for unit in slurmd slurmctld slurmdbd slurmrestd prometheus prometheus-alertmanager mariadb; do
    in_root systemctl disable "$unit.service" 2>/dev/null || true
done
in_root systemctl enable ssh.service munge.service
in_root systemctl set-default multi-user.target
if [ "$(in_root systemctl --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p')" -ge 258 ]; then
    ln -sf ../lib/headway/init "$root/usr/sbin/init"
fi

# What a container neither needs nor may do (udev and sysctl would act on the host), and what would slow the boot.
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

# Slurm counts far more CPUs here than there are. MPI's processes ask for the next message without pause, and the daemons
# they wait for would hardly run: they let others run in between. Not by sched_yield, of which they make 50,000 a second: on
# Linux 6.18 a few of them kept everything else on the host from running for minutes ("workqueue lockup" in its log).
# And they speak through UCX: with the other layer (ob1) a rank that Slurm's PMIx has freed early from the barrier at the end of
# MPI_Init kills those that still wait in it with its first message (open-mpi/ompi issue 12495; one run in 40 when cores are busy).
# (Debian's file has no end of its last line, and rules UCX out for windows too: they go the way of the messages.)
cat >>"$root/etc/openmpi/openmpi-mca-params.conf" <<'END'

mpi_yield_when_idle = 1
threads_pthreads_yield_strategy = nanosleep
threads_pthreads_nanosleep_time = 100000
pml = ucx
osc = ucx,sm
opal_common_ucx_tls = any
opal_common_ucx_devices = any
END

# Root signs in only to administer (every remote command of Headway does): no login session, no user manager for that.
sed -i -E 's/^session[[:space:]].*pam_systemd\.so.*$/session [success=1 default=ignore] pam_succeed_if.so quiet uid = 0\n&/' \
    "$root/etc/pam.d/common-session"

# The parts that machines without a node image get too.
parts=$root/usr/lib/headway/parts
mkdir -p "$parts"
cp -r "$(dirname "$0")"/spank "$(dirname "$0")"/pam "$(dirname "$0")"/*.sh "$parts/"
cp -r "$root/usr/lib/headway/container" "$parts/"
in_root sh /usr/lib/headway/parts/build_parts.sh /
rm -r "$parts"
