#!/bin/sh
# Runs on the building host when all packages are installed ($1: the root folder of the image to be), before anything
# of a node is set: drops what no node needs, so that it takes no place in the image.
set -eu
umask 022
root=$1
chroot "$root" localedef -i en_US -f UTF-8 en_US.UTF-8

# JupyterLab's package also asks for the tools that build it, a gigabyte of them: only its own files are taken. What it
# needs in Python is installed as packages.
if [ -d "$root/usr/lib/python3/dist-packages/jupyterlab_server" ]; then
    lab=$(mktemp -d "$root/tmp/lab.XXXXXX")
    (cd "$lab" && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --quiet download jupyterlab)
    dpkg-deb --fsys-tarfile "$lab"/jupyterlab_*.deb |
        tar --extract --directory "$root" --wildcards --exclude '*.map' --exclude './usr/lib/python3/dist-packages/jupyterlab/tests' \
            './etc/jupyter*' './usr/bin/jupyter-lab' './usr/lib/python3/dist-packages/*' './usr/share/jupyter/*'
    rm -r "$lab"
    chroot "$root" python3 -m compileall -q /usr/lib/python3/dist-packages/jupyterlab
fi

mkdir -p "$root/usr/lib/headway"
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' >"$root/usr/lib/headway/packages"
rm -rf "$root"/usr/share/i18n/charmaps "$root"/var/log/apt "$root"/var/log/*.log "$root"/var/cache/debconf/*-old \
    "$root"/var/cache/ldconfig "$root"/var/lib/dpkg/*-old "$root"/usr/lib/systemd/hwdb "$root"/usr/lib/udev/hwdb.* \
    "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/usr/bin/promtool "$root"/usr/bin/amtool "$root"/usr/lib/libtorch-test

# Identities are a machine's or a cluster's own, never the image's.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/munge/munge.key" "$root/var/lib/dbus/machine-id"
: >"$root/etc/machine-id"
rm -f "$root/etc/hostname" "$root/etc/resolv.conf"
