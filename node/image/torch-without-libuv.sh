#!/bin/sh
# Makes the rendezvous of Debian's torchrun work. Usage: torch-without-libuv.sh ROOT (the root folder of an image, or /)
#
# Debian builds PyTorch without libuv, but PyTorch 2.4 and later request a libuv store by default. torchrun has no option
# against this and ends with "use_libuv was requested but PyTorch was build without libuv support". This script changes the
# default of the store for torchrun and for scripts. It does not change versions without libuv (Debian 12). It can be run
# again.
set -eu
package=${1%/}/usr/lib/python3/dist-packages/torch/distributed
[ -d "$package" ] || exit 0
grep -q use_libuv "$package/rendezvous.py" || exit 0
grep -q 'Headway: ' "$package/__init__.py" && exit 0
cat >>"$package/__init__.py" <<'PYTHON'


# Headway: this build has no libuv, so stores are created without it.
if is_available():
    from torch._C import _distributed_c10d as _c10d

    _make_store = _c10d.TCPStore.__init__

    def _store_without_libuv(self, *args, **kwargs):
        kwargs["use_libuv"] = False
        _make_store(self, *args, **kwargs)

    _c10d.TCPStore.__init__ = _store_without_libuv
PYTHON
