#!/bin/sh
# Builds and installs Headway's own parts on a machine that has the packages. Usage: build_parts.sh ROOT (/, or a root folder
# that is entered by chroot). Needs spank/, pam/, container/, bin/ and torch-without-libuv.sh in its own folder. Can be run again.
set -eu
umask 022
root=${1%/}
here=$(dirname "$0")
own=$root/usr/lib/headway

# passwd, group and shadow entries of users are in /var/lib/extrausers.
sed -i -E 's/^((passwd|group|shadow):.*)$/\1 extrausers/; s/( extrausers)+$/ extrausers/' "$root/etc/nsswitch.conf"
mkdir -p "$root/var/lib/extrausers"
sh "$here/torch-without-libuv.sh" "$root/"

# Plugins, compiled against the headers of the installed Slurm, and two static programs that run inside containers. Each is
# written under a temporary name, because a daemon may have the old file open.
mkdir -p "$own/spank" "$own/pam"
# It stands for the CUDA driver where GPUs are simulated; real GPUs have their driver's own library.
gcc -O2 -Wall -Wextra -Werror -fPIC -shared -o "$own/libcuda.new" "$here/gpu/simulated_libcuda.c" -lm
mv "$own/libcuda.new" "$own/libcuda-simulated.so"
for plugin in spank/private_tmp spank/container pam/job_tmp; do
    gcc -O2 -Wall -Wextra -Werror -fPIC -shared -o "$own/$plugin.new" "$here/$plugin.c"
    mv "$own/$plugin.new" "$own/$plugin.so"
done
gcc -O2 -Wall -Wextra -Werror -static -o "$own/spank/namespace_holder.new" "$here/spank/namespace_holder.c"
mv "$own/spank/namespace_holder.new" "$own/spank/hold"
gcc -O2 -Wall -Wextra -Werror -static -o "$own/spank/smi.new" "$here/spank/nvidia_smi.c"
mv "$own/spank/smi.new" "$own/spank/nvidia-smi"

# Programs for people: found before those of Debian's packages, and after a site's own of the same name.
mkdir -p "$own/bin" "$root/usr/local/bin"
for program in "$here"/bin/*; do
    name=${program##*/}
    cp "$program" "$own/bin/$name.new"
    chmod 0755 "$own/bin/$name.new"
    mv "$own/bin/$name.new" "$own/bin/$name"
    [ -e "$root/usr/local/bin/$name" ] || ln -sf "/usr/lib/headway/bin/$name" "$root/usr/local/bin/$name"
done
if [ ! "$here/container" -ef "$own/container" ]; then
    mkdir -p "$own/container"
    cp "$here"/container/*.py "$own/container/"
fi
chmod 0755 "$own" "$own/container" "$own/bin" # the builder's umask may have made them private
python3 -m compileall -q "$own/container"
