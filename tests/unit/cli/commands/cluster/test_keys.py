"""keys rotate sends the right request and prints the answer."""

from __future__ import annotations

from tests.support.cli_fakes import Cli, cli, operation

__all__ = ["cli"]  # a fixture


def test_keys_rotate_replaces_the_munge_key(cli: Cli) -> None:
    done = operation("done", kind="rotate")
    cli.api.on("clusters.rotate_key", done).on("operations.events", []).on("operations.get", done)
    assert cli("keys", "rotate", "munge", "lab").out.splitlines()[-1] == "lab has a new munge key"
    assert cli.api.named("clusters.rotate_key") == [(("lab", "munge"), {})]
