"""A site is read from a folder, and from what the program on its head prints; keys are not read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from headway.errors import CommandFailed, NotFound, Refused, Unreachable
from headway.sdk.slurm_site.folder import read_folder
from headway.sdk.slurm_site.head import HeadAddress, parse_address, parse_parts, read_head
from headway.transport.process import CommandResult


def test_folder_is_read_with_its_subfolders(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    (tmp_path / "conf.d/a.conf").write_bytes(b"Feature=\xff\n")
    site = read_folder(tmp_path)
    assert site.texts == {"slurm.conf": "ClusterName=x\n", "conf.d/a.conf": "Feature=\ufffd\n"}
    assert (site.unread, site.source) == ({}, str(tmp_path))


def test_keys_and_files_that_are_no_text_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "munge.key").write_text("k")
    (tmp_path / "jwt.key").write_text("k")
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (tmp_path / "state").write_bytes(b"\0\1")
    (tmp_path / "gone.conf").symlink_to(tmp_path / "nowhere")
    site = read_folder(tmp_path)
    assert site.texts == {}
    assert site.unread == {
        "munge.key": "it may be a key: keys are not read",
        "jwt.key": "it may be a key: keys are not read",
        "id": "it is a private key: keys are not read",
        "state": "it is not text",
        "gone.conf": "the link leads nowhere",
    }


def test_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is no folder"):
        read_folder(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ssh://head", HeadAddress("head")),
        ("ssh://ops@10.0.0.1:2222/", HeadAddress("10.0.0.1", "ops", "2222")),
        ("ssh://first.last@head.example.org", HeadAddress("head.example.org", "first.last")),
    ],
)
def test_address_of_a_head(text: str, address: HeadAddress) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["ssh://", "ssh://-oProxyCommand=x", "http://head", "ssh://-u@head", "ssh://a b", "ssh://head:x"]
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="is no address of a head"):
        parse_address(text)


def test_ssh_asks_nothing_and_takes_no_options_from_the_address() -> None:
    argv = HeadAddress("head", "ops", "2222").argv
    assert argv[argv.index("--") :] == ["--", "ops@head", "sh", "-s"]
    assert "BatchMode=yes" in argv


def test_parts_of_a_head() -> None:
    out = b"Welcome!\nFILE 6 slurm.conf\na=1\n\xff\n\nFAIL b.conf\ncat: b.conf: Permission denied\nFILE 0 empty\n\nEND\nmore"
    texts, unread, complete = parse_parts(out)
    assert texts == {"slurm.conf": "a=1\n\ufffd\n", "empty": ""}
    assert (unread, complete) == ({"b.conf": "cat: b.conf: Permission denied"}, True)


def test_connection_that_ends_early_is_noticed() -> None:
    unread = {"slurm.conf": "only 4 of its 900 bytes were read"}
    assert parse_parts(b"FILE 900 slurm.conf\na=1\n") == ({"slurm.conf": "a=1\n"}, unread, False)


async def too_slow(argv: Sequence[str], **_: object) -> CommandResult:
    raise CommandFailed(argv, None, "", out=b"FILE 4 slurm.conf\na=1\n\nFILE 900 gres.conf\nName=")


async def silent(argv: Sequence[str], **_: object) -> CommandResult:
    raise CommandFailed(argv, None, "")


def test_what_a_slow_head_has_sent_in_time_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.transport.process.run_process", too_slow)
    site = read_head("ssh://head")
    assert site.texts["slurm.conf"] == "a=1\n"
    assert site.unread == {
        "gres.conf": "only 5 of its 900 bytes were read",
        "(the rest)": "the head did not send it within 300 s",
    }
    monkeypatch.setattr("headway.transport.process.run_process", silent)
    with pytest.raises(Unreachable, match="head sent no files of Slurm: the head did not send it within 300 s"):
        read_head("ssh://head")
