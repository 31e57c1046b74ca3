"""version works without a server."""

from __future__ import annotations

import json

import pytest

from headway import __version__
from headway.errors import HeadwayError, NotSignedIn, Refused, Unreachable
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_version_works_without_a_server(cli: Cli) -> None:
    cli.api.on("server", Unreachable("no server"))
    assert cli("version").out.endswith("server  none in reach\n")
    assert json.loads(cli("version", "-o", "json").out)["server"] is None


@pytest.mark.parametrize(
    "error",
    [NotSignedIn("this token is not known", hint="headway token create"), Refused("the server answers in another way")],
)
def test_version_reports_url_and_error_of_a_refusing_server(cli: Cli, error: HeadwayError) -> None:
    cli.api.on("server", error)
    done = cli("version")
    assert (done.code, done.out.splitlines()[1:]) == (error.exit_code, [f"server  at {cli.api.url}"])
    assert done.err.startswith(f"error: {error.message}\n")
    output = cli("version", "-o", "json")
    assert (output.code, json.loads(output.out)) == (error.exit_code, {"client": __version__, "server": None})
    cli.api.on("server", Unreachable("no server at http://far:1"))
    assert cli("version").out.endswith("server  none in reach: no server at http://far:1\n")
