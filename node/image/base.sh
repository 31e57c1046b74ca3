#!/bin/sh
# Runs on the building host when all packages are installed ($1: the root folder of the image to be), before anything
# of a node is set: drops what no node needs, so that it takes no place in the image.
set -eu
umask 022
root=$1
chroot "$root" localedef -i en_US -f UTF-8 en_US.UTF-8
mkdir -p "$root/usr/lib/headway"
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' >"$root/usr/lib/headway/packages"
rm -rf "$root"/usr/share/i18n/charmaps "$root"/var/log/apt "$root"/var/log/*.log "$root"/var/cache/debconf/*-old \
    "$root"/var/cache/ldconfig "$root"/var/lib/dpkg/*-old "$root"/usr/lib/systemd/hwdb "$root"/usr/lib/udev/hwdb.* \
    "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/usr/bin/promtool "$root"/usr/lib/libtorch-test

# Identities are a machine's or a cluster's own, never the image's.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/munge/munge.key" "$root/var/lib/dbus/machine-id"
: >"$root/etc/machine-id"
rm -f "$root/etc/hostname" "$root/etc/resolv.conf"
