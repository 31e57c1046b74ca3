"""Seals and opens messages with MUNGE (libmunge through ctypes)."""

from __future__ import annotations

import ctypes
from typing import Protocol

_UID_RESTRICTION = 9  # MUNGE_OPT_UID_RESTRICTION of munge.h


class Seals(Protocol):
    """What Munge does. Tests have a MUNGE of their own."""

    def seal(self, data: bytes) -> bytes:
        """Returns the sealed data. Raises OSError when munged does not answer."""
        ...

    def seal_for_root(self, data: bytes) -> bytes:
        """Returns the encrypted data, which only root can open. Raises OSError when munged does not answer."""
        ...

    def open(self, sealed: bytes) -> tuple[bytes, int]:
        """Returns (data, uid of the process that sealed it). Raises OSError for data that is forged, too old or was
        opened before."""
        ...


class Munge:
    """Seals and opens messages with the MUNGE key that all machines of the cluster share."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libmunge.so.2")
        self._library.munge_strerror.restype = ctypes.c_char_p
        self._library.munge_ctx_create.restype = ctypes.c_void_p
        self._library.munge_ctx_set.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._library.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]

    def seal(self, data: bytes) -> bytes:
        """Returns the sealed data, which every process on machines with the key can open. Raises OSError when munged does
        not answer."""
        return self._encode(None, data)

    def seal_for_root(self, data: bytes) -> bytes:
        """Returns the encrypted data, which only root on machines with the key can open. Raises OSError when munged does
        not answer."""
        context = self._library.munge_ctx_create()
        try:
            self._check(self._library.munge_ctx_set(context, _UID_RESTRICTION, ctypes.c_uint32(0)))
            return self._encode(ctypes.c_void_p(context), data)
        finally:
            self._library.munge_ctx_destroy(context)

    def _encode(self, context: ctypes.c_void_p | None, data: bytes) -> bytes:
        sealed = ctypes.c_void_p()
        self._check(self._library.munge_encode(ctypes.byref(sealed), context, data, len(data)))
        text = ctypes.string_at(sealed)
        self._free(sealed)
        return text

    def open(self, sealed: bytes) -> tuple[bytes, int]:
        """Returns (data, uid of the process that sealed it). Raises OSError for data that is forged, too old or was
        opened before."""
        data, length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
        refs = [ctypes.byref(value) for value in (data, length, uid, gid)]
        code = self._library.munge_decode(sealed, None, *refs)
        # munge_decode returns the content even with some errors, so it is freed before the error is raised.
        text = ctypes.string_at(data, length.value) if data.value else b""
        if data.value:
            self._free(data)
        self._check(code)
        return text, uid.value

    def _check(self, code: int) -> None:
        if code:
            raise OSError(f"MUNGE: {self._library.munge_strerror(code).decode()}")
