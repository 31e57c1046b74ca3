"""container sends the right request to the head and refuses invalid input before that."""

from __future__ import annotations

import json

import pytest

from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_container_import_prints_image_path_and_size(cli: Cli) -> None:
    made = {"image": "ubuntu", "path": "/scratch/.containers/sha256-a.sqsh", "bytes": 3 << 20}
    cli.api.on("commands.stream", lambda *_: (one for one in [("out", json.dumps(made).encode()), ("code", b"0")]))
    done = cli("container", "import", "lab", "ubuntu")
    assert (done.code, done.out) == (0, "ubuntu is available to all users: /scratch/.containers/sha256-a.sqsh, 3 MiB\n")


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("/scratch/x.sqsh", "needs no import: Slurm uses the file directly"), ("x.squashfs", "needs no import"),
        ("./layout", "not an absolute path"), ("../layout", "not an absolute path"), ("oci:layout:tag", "not an absolute path"),
    ],
)  # fmt: skip
def test_container_import_refuses_invalid_images_before_any_request(cli: Cli, image: str, why: str) -> None:
    done = cli("container", "import", "lab", image)
    assert (done.code, done.out) == (1, "")
    assert why in done.err
    assert "fetching" not in done.err
