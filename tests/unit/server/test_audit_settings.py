"""The destinations of the audit trail are read from environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import Refused
from headway.server.audit_settings import read_audit_settings
from headway.services.server_settings import AuditExport, SyslogServer


def test_audit_settings_are_read_from_environment(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("Authorization: Bearer s3cret\n\nX-Scope: hpc\n")
    found = read_audit_settings({
        "HEADWAY_AUDIT_FILE": str(tmp_path / "audit.jsonl"), "HEADWAY_AUDIT_SYSLOG": "tcp://log.example.org:6514",
        "HEADWAY_AUDIT_OTLP": "https://otel.example.org:4318/",
        "HEADWAY_AUDIT_OTLP_HEADERS_FILE": str(tmp_path / "headers"), "HEADWAY_AUDIT_EXEC_ARGUMENTS": "1",
    })  # fmt: skip
    assert found == AuditExport(
        tmp_path / "audit.jsonl",
        SyslogServer("tcp", "log.example.org", 6514),
        "https://otel.example.org:4318/v1/logs",
        (("Authorization", "Bearer s3cret"), ("X-Scope", "hpc")),
        exec_arguments=True,
    )
    assert "s3cret" not in repr(found)
    assert read_audit_settings({}) == AuditExport()


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("/dev/log", SyslogServer("unix", "/dev/log", 0)),
        ("udp://127.0.0.1", SyslogServer("udp", "127.0.0.1", 514)),
        ("udp://[::1]:1514", SyslogServer("udp", "::1", 1514)),
        ("tls://log.example.org", SyslogServer("tls", "log.example.org", 6514)),
    ],
)
def test_syslog_server_has_a_socket_or_an_address(text: str, server: SyslogServer) -> None:
    assert read_audit_settings({"HEADWAY_AUDIT_SYSLOG": text}).syslog == server


@pytest.mark.parametrize(
    ("syslog", "otlp", "in_clear"),
    [
        ("udp://log.example.org", "http://otel.example.org:4318", ("HEADWAY_AUDIT_SYSLOG", "HEADWAY_AUDIT_OTLP")),
        ("tcp://192.0.2.1:514", "https://otel.example.org:4318", ("HEADWAY_AUDIT_SYSLOG",)),
        ("tls://log.example.org", "http://127.0.0.1:4318", ()),
        ("/dev/log", "", ()),
    ],
)
def test_destinations_on_other_machines_without_encryption_are_named(
    syslog: str, otlp: str, in_clear: tuple[str, ...]
) -> None:
    found = read_audit_settings({"HEADWAY_AUDIT_SYSLOG": syslog, "HEADWAY_AUDIT_OTLP": otlp})
    assert found.in_clear == in_clear


def test_refuses_invalid_audit_settings_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("Authorization\n")
    for env, words in (
        ({"HEADWAY_AUDIT_FILE": "audit.jsonl"}, "not a file in an existing folder"),
        ({"HEADWAY_AUDIT_FILE": "/nowhere/audit.jsonl"}, "not a file in an existing folder"),
        ({"HEADWAY_AUDIT_SYSLOG": "log.example.org"}, "not a syslog server"),
        ({"HEADWAY_AUDIT_SYSLOG": "tcp://log.example.org:x"}, "not a syslog server"),
        ({"HEADWAY_AUDIT_OTLP": "otel.example.org"}, "not an address"),
        ({"HEADWAY_AUDIT_OTLP_HEADERS_FILE": "/nowhere"}, "can't be read"),
        ({"HEADWAY_AUDIT_OTLP_HEADERS_FILE": str(tmp_path / "bad")}, "line 1"),
    ):
        with pytest.raises(Refused, match=words) as refused:
            read_audit_settings(env)
        assert refused.value.hint
