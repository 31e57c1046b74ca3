"""The Debian mirror of a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.errors import Refused
from headway.images import apt_mirror
from headway.images.apt_mirror import SourceEntry, parse_deb822, parse_one_line, read_sources, sources_for_suite
from headway.transport.process import CommandResult

DEB822 = """# comment
Types: deb deb-src
URIs: http://mirror.test/debian/
Suites: bookworm bookworm-updates
Components: main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.test/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.test/debian
Suites: trixie
Components: main
"""


def test_parses_deb822_sources() -> None:
    found = list(parse_deb822(DEB822))
    assert [(entry.uri, entry.suite) for entry in found] == [
        ("http://mirror.test/debian", "bookworm"),
        ("http://mirror.test/debian", "bookworm-updates"),
        ("http://mirror.test/debian-security", "bookworm-security"),
    ]


def test_parses_one_line_sources() -> None:
    text = (
        "# deb http://off.test/debian sid main\n"
        "deb [arch=amd64 trusted=yes] http://mirror.test/debian/ trixie main contrib # ours\n"
        "deb-src http://mirror.test/debian trixie main\n"
        "deb http://other.test/apt trixie extras\n"
    )
    assert list(parse_one_line(text)) == [SourceEntry("http://mirror.test/debian", "trixie", "[trusted=yes]")]


def test_source_options_keep_check_valid_until_and_trusted() -> None:
    (entry,) = parse_one_line("deb [check-valid-until=no] http://mirror.test/debian trixie main\n")
    assert entry.options == "[check-valid-until=no]"
    stanza = "Types: deb\nURIs: http://mirror.test/debian\nSuites: trixie\nComponents: main\nTrusted: yes\n"
    (entry,) = parse_deb822(f"{stanza}Check-Valid-Until: no\n")
    assert entry.options == "[trusted=yes check-valid-until=no]"


async def test_host_mirror_keeps_apt_proxy_and_validity_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = (
        'Acquire::http::Proxy "http://proxy.test:3128";\nAcquire::Check-Valid-Until "false";\nAcquire::Retries "3";\n'
    )
    asked: list[str] = []

    async def run(argv: list[str], **_: Any) -> CommandResult:
        asked.append(argv[-2])
        return CommandResult(tuple(argv), 0, said, "", 0.0)

    monkeypatch.setattr(apt_mirror, "run_process", run)
    monkeypatch.setattr(apt_mirror, "read_sources", lambda: list(parse_deb822(DEB822)))
    found = await apt_mirror.host_mirror("trixie")
    assert found.apt_options == ('Acquire::http::Proxy "http://proxy.test:3128"', 'Acquire::Check-Valid-Until "false"')
    assert len(found.lines) == 3
    newest = await apt_mirror.host_mirror("forky", released=False)
    assert newest.lines == ("deb http://mirror.test/debian forky main",), (
        "old lists are removed: apt refuses both together"
    )


def test_reads_all_apt_source_files_of_host(tmp_path: Path) -> None:
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (folder / "debian.sources").write_text(DEB822)
    (folder / "backup.sources.save").write_text(DEB822)
    (tmp_path / "sources.list").write_text("deb http://first.test/debian bookworm main\n")
    assert [entry.uri for entry in read_sources(tmp_path)][:2] == [
        "http://first.test/debian",
        "http://mirror.test/debian",
    ]
    assert len(read_sources(tmp_path)) == 4


def test_other_suite_uses_same_mirror() -> None:
    line, more = sources_for_suite(parse_deb822(DEB822), "trixie")
    assert line == "deb http://mirror.test/debian trixie main"
    assert more == [
        "deb http://mirror.test/debian trixie-updates main",
        "deb http://mirror.test/debian-security trixie-security main",
    ]


def test_refuses_third_party_sources_as_debian_mirror() -> None:
    with pytest.raises(Refused, match="no Debian mirror"):
        sources_for_suite(parse_one_line("deb https://vendor.test/node nodistro main\n"), "trixie")
