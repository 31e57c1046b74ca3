#!/bin/sh
# Makes Debian's torchrun meet: usage: torch-without-libuv.sh ROOT   (a root file system that is being built, or /)
#
# Debian builds PyTorch without libuv, yet PyTorch 2.4 and later ask for a libuv store wherever a caller does not say
# otherwise, and torchrun's own rendezvous code does not let one say it: every torchrun ends with "use_libuv was requested
# but PyTorch was build without libuv support". This changes the default, in the few places that have one; a caller's own
# choice stands. Versions before libuv (Debian 12) have none of these lines, and nothing is changed there.
set -eu
torch=${1%/}/usr/lib/python3/dist-packages/torch/distributed
[ -d "$torch" ] || exit 0
grep -q USE_LIBUV "$torch/rendezvous.py" || exit 0
sed -i 's/"USE_LIBUV", "1"/"USE_LIBUV", "0"/' "$torch/rendezvous.py" "$torch/elastic/utils/distributed.py"
for file in c10d_rendezvous_backend static_tcp_rendezvous; do
  file=$torch/elastic/rendezvous/$file.py
  grep -q use_libuv "$file" || sed -i 's/^\( *\)multi_tenant=True,$/&\n\1use_libuv=False,/' "$file"
  grep -q use_libuv=False "$file" || { echo "torch-without-libuv: $file is not as expected" >&2; exit 1; }
done
