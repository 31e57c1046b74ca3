"""The C sources of Slurm plugins and programs on nodes, parts of which run as root, pass GCC's static analysis: leaks, use after
free, NULL pointers, file descriptors, sizes of buffers."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path

import pytest
from tests.cluster.lab import Lab

IMAGE = Path(__file__).parents[3] / "node/image"
SOURCES = sorted(str(file.relative_to(IMAGE)) for file in IMAGE.rglob("*.c"))
ANALYSE = "gcc -O2 -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror -fanalyzer -fPIC -c -o /dev/null"


def run_on_head(lab: Lab, source: str, extra: dict[str, str] | None = None) -> tuple[int, str]:
    """Compiles one source on the head, which has the headers of its Slurm. Returns gcc's exit code and messages."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for file in IMAGE.rglob("*.[ch]"):
            tar.add(file, str(file.relative_to(IMAGE)))
        for name, text in (extra or {}).items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    archive = base64.b64encode(packed.getvalue()).decode()
    script = f"d=$(mktemp -d) && base64 -d | tar xz -C $d && cd $d && {ANALYSE} {source}; rc=$?; rm -rf $d; exit $rc"
    ran = lab.head("sh", "-c", script, stdin=archive, check=False)
    return ran.code, ran.out + ran.err


@pytest.mark.parametrize("source", SOURCES)
def test_static_analysis_of_c_sources_finds_nothing(lab: Lab, source: str) -> None:
    assert run_on_head(lab, source) == (0, "")


def test_static_analysis_finds_memory_that_is_freed_twice(lab: Lab) -> None:
    twice = "#include <stdlib.h>\nvoid twice(char *text)\n{\n    free(text);\n    free(text);\n}\n"
    code, said = run_on_head(lab, "twice.c", {"twice.c": twice})
    assert (code, "analyzer-double-free" in said) == (1, True), said
