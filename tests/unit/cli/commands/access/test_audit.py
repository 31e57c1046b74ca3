"""audit exports the trail, and verify reports the first line that does not match its hash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.schemas.access.audit import AuditCheckOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_audit_export_writes_the_csv_trail_unchanged(cli: Cli) -> None:
    cli.api.on("people.audit_trail", lambda _: iter([b"number,at\r\n", b"1,2\r\n"]))
    assert cli("audit", "export", "--person", "ann", "--format", "csv").raw == b"number,at\r\n1,2\r\n"
    assert cli.api.named("people.audit_trail")[0][0] == ({"person": "ann", "format": "csv"},)


def test_audit_verify_prints_number_and_hash_of_the_last_line(cli: Cli) -> None:
    cli.api.on("people.verify_audit", lambda *_: AuditCheckOut(lines=1, number=1, hash="abc"))
    assert cli("audit", "verify").out.splitlines() == [
        "The audit trail is intact: 1 line.",
        "The last is line 1, hash abc",
    ]
    assert cli.api.named("people.verify_audit")[0][0] == (0, "")


def test_audit_verify_compares_with_the_last_line_of_an_export(cli: Cli, tmp_path: Path) -> None:
    export = tmp_path / "audit.jsonl"
    export.write_text("".join(json.dumps({"number": n, "hash": f"h{n}"}) + "\n" for n in (1, 10, 9)))
    cli.api.on("people.verify_audit", lambda *_: AuditCheckOut(lines=12, number=12, hash="abc"))
    assert f"Line 10 has the hash that {export} has." in cli("audit", "verify", str(export)).out
    assert cli.api.named("people.verify_audit")[0][0] == (10, "h10")


def test_audit_verify_fails_for_a_changed_line(cli: Cli) -> None:
    broken = AuditCheckOut(lines=7, number=7, hash="abc", broken_at=7, fault="line 7 was changed")
    cli.api.on("people.verify_audit", lambda *_: broken)
    ran = cli("audit", "verify")
    assert ran.code == 1
    assert ran.out.startswith("The audit trail does not match its hashes from line 7 on: line 7 was changed.")


@pytest.mark.parametrize(("text", "says"), [("{}\n", "line 1: not a line"), ("", "has no line")])
def test_audit_verify_refuses_a_file_that_is_no_export(cli: Cli, tmp_path: Path, text: str, says: str) -> None:
    export = tmp_path / "audit.jsonl"
    export.write_text(text)
    ran = cli("audit", "verify", str(export))
    assert ran.code != 0
    assert says in ran.err
