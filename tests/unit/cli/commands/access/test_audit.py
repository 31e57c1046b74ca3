"""audit exports the trail."""

from __future__ import annotations

from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_audit_writes_the_csv_trail_unchanged(cli: Cli) -> None:
    cli.api.on("people.audit_trail", lambda _: iter([b"number,at\r\n", b"1,2\r\n"]))
    assert cli("audit", "--person", "ann", "--format", "csv").raw == b"number,at\r\n1,2\r\n"
    assert cli.api.named("people.audit_trail")[0][0] == ({"person": "ann", "format": "csv"},)
