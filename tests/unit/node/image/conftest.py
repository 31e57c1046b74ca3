"""The modules of the nodes' container runtime, imported as the program itself imports them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from headway.images import recipe

MODULES = (
    "messages",
    "image_reference",
    "signature_policy",
    "mounts_option",
    "credentials",
    "image_store",
    "syscalls",
    "sandbox",
    "oci_bundles",
)


@pytest.fixture(scope="module")
def runtime() -> Iterator[dict[str, ModuleType]]:
    """Its modules by name, as the program itself imports them."""
    folder = str(recipe.files_folder() / "rootfs/usr/lib/headway/container")
    assert not any(name in sys.modules for name in MODULES)
    sys.path.insert(0, folder)
    try:
        yield {name: importlib.import_module(name) for name in MODULES}
    finally:
        sys.path.remove(folder)
        for name in MODULES:
            sys.modules.pop(name, None)
