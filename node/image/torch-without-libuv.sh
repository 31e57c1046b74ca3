#!/bin/sh
# Makes Debian's torchrun meet: usage: torch-without-libuv.sh ROOT   (a root file system that is being built, or /)
#
# Debian builds PyTorch without libuv, yet PyTorch 2.4 and later ask for a libuv store wherever a caller does not say
# otherwise, and torchrun does not let one say it: it ends with "use_libuv was requested but PyTorch was build without
# libuv support". Such a store can never be had here, so the other kind is made instead, for torchrun and for scripts.
# Versions before libuv (Debian 12) are left as they are. Running it twice changes nothing.
set -eu
package=${1%/}/usr/lib/python3/dist-packages/torch/distributed
[ -d "$package" ] || exit 0
grep -q use_libuv "$package/rendezvous.py" || exit 0
grep -q 'Headway: ' "$package/__init__.py" && exit 0
cat >>"$package/__init__.py" <<'PYTHON'


# Headway: this build has no libuv, so a store that asks for it is made without.
if is_available():
    from torch._C import _distributed_c10d as _c10d

    _make_store = _c10d.TCPStore.__init__

    def _store_without_libuv(self, *args, **kwargs):
        kwargs["use_libuv"] = False
        _make_store(self, *args, **kwargs)

    _c10d.TCPStore.__init__ = _store_without_libuv
PYTHON
