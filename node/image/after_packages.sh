#!/bin/sh
# Runs on the building host after the packages are installed: mmdebstrap calls it (images/build.py). $1: the root folder of the
# image. Removes files that no node needs and identities that belong to one machine.
set -eu
umask 022
root=$1
chroot "$root" localedef -i en_US -f UTF-8 en_US.UTF-8

# JupyterLab's package depends on a gigabyte of build tools, so only its own files are unpacked. The Python packages that it
# needs are installed as packages.
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
    "$root"/etc/apt/apt.conf.d/99mmdebstrap
# Tests of Python packages (not by dpkg's path-exclude: their packages compile all that they list).
find "$root/usr/lib/python3/dist-packages" -type d -name tests -prune -exec rm -r {} +

# Host keys, the MUNGE key and the machine id differ by machine or cluster, so the image has none.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/munge/munge.key" "$root/var/lib/dbus/machine-id"
: >"$root/etc/machine-id"
rm -f "$root/etc/hostname" "$root/etc/resolv.conf"
