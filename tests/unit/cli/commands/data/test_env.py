"""env ls names the versions that nothing needs any more."""

from __future__ import annotations

from headway.schemas.storage.environments import EnvironmentOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture
ONE = EnvironmentOut(
    name="vision", version=1, path="/environments/vision/1", digest="0" * 64, python="3.13.5", packages=40, bytes=5 << 20,
    source="requirements.txt", person="ann", at=1.0, job_id=7, removable=True,
)  # fmt: skip
LATEST = ONE.model_copy(update={"version": 2, "removable": False})


def test_versions_that_nothing_needs_are_named_with_their_size_and_how_to_remove_them(cli: Cli) -> None:
    cli.api.on("environments.list", [ONE, LATEST])
    done = cli("env", "ls", "lab")
    assert "vision@2" in done.out
    assert (
        "not needed any more, 5.0 MiB: vision@1; unless a script loads them, remove them: headway env rm lab"
        in done.err
    )


def test_nothing_is_said_where_all_versions_are_needed(cli: Cli) -> None:
    cli.api.on("environments.list", [LATEST])
    assert cli("env", "ls", "lab").err == ""
