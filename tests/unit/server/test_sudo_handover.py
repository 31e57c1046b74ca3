"""A server started through sudo hands its address to the person who ran sudo, as that person."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import paths
from headway.sdk.cluster_file import load_document, public_key
from headway.sdk.process_liveness import process_start_time
from headway.server import sudo_handover
from headway.system_user import user_behind_sudo
from tests.support.clusters import builders

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of dora, who called sudo: below a folder that she may enter, as pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="headway-sudo-"))
    os.chown(folder, STRANGER, STRANGER)
    dora = pwd.struct_passwd(("dora", "x", STRANGER, STRANGER, "", str(folder), "/bin/sh"))
    monkeypatch.setenv("SUDO_USER", "dora")
    monkeypatch.setattr(pwd, "getpwnam", {"dora": dora}.__getitem__)
    yield folder
    shutil.rmtree(folder)


@needs_root
async def test_hand_over_writes_admin_token_for_sudo_user(home: Path, tmp_path: Path) -> None:
    store = await builders.store(tmp_path)
    file = home / ".config" / "headway" / paths.SUDO_FILE
    await sudo_handover.hand_over(store, tmp_path, "http://127.0.0.1:7001")
    known = json.loads(file.read_text())[str(tmp_path)]
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (STRANGER, 0o600)
    assert (known["url"], known["pid"], known["started"]) == (
        "http://127.0.0.1:7001", os.getpid(), process_start_time(os.getpid()),
    )  # fmt: skip
    held = await store.tokens.holder(known["token"])
    assert held is not None
    assert (held.person.name, held.person.role) == ("dora", "admin")
    await sudo_handover.hand_over(store, tmp_path, "http://127.0.0.1:7002")
    again = json.loads(file.read_text())[str(tmp_path)]
    assert (again["url"], again["token"]) == ("http://127.0.0.1:7002", known["token"])
    assert (os.geteuid(), os.getegid()) == (0, 0)
    (row,) = await store.tokens.all("dora")
    assert row.expires_at is not None, "the server replaces the token before its end"
    await sudo_handover.hand_over(store, tmp_path, "http://127.0.0.1:7002", renew_before_s=365 * 86400.0)
    assert json.loads(file.read_text())[str(tmp_path)]["token"] != known["token"]
    await store.close()


@needs_root
async def test_hand_over_keeps_entries_of_other_running_servers(home: Path, tmp_path: Path) -> None:
    store = await builders.store(tmp_path)
    file = home / ".config" / "headway" / paths.SUDO_FILE
    await sudo_handover.hand_over(store, tmp_path, "http://127.0.0.1:7001")
    mine = json.loads(file.read_text())[str(tmp_path)]
    file.write_text(json.dumps({"/lives": mine, "/ended": {**mine, "started": "1"}}))
    await sudo_handover.hand_over(store, tmp_path, "http://127.0.0.1:7001")
    assert set(json.loads(file.read_text())) == {"/lives", str(tmp_path)}
    await store.close()


@needs_root
async def test_hand_over_does_not_follow_symlink(home: Path, tmp_path: Path) -> None:
    store = await builders.store(tmp_path)
    private = tmp_path / "etc"
    private.mkdir(mode=0o755)
    (home / ".config").symlink_to(private)
    await sudo_handover.hand_over(store, tmp_path, "http://127.0.0.1:7001")
    assert list(private.iterdir()) == []
    await store.close()


@needs_root
def test_cluster_file_under_sudo_includes_key_of_sudo_user(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "cluster.yaml").write_text("name: lab\nplan: h100-8\nnodes: 2\n")
    keys = load_document(tmp_path / "cluster.yaml").spec["ssh_keys"]
    theirs = home / ".config" / "headway" / "id_ed25519"
    assert keys == [
        public_key(tmp_path / ".config" / "headway", tmp_path),
        theirs.with_suffix(".pub").read_text().strip(),
    ]
    assert (theirs.stat().st_uid, theirs.stat().st_mode & 0o777) == (STRANGER, 0o600)


def test_no_sudo_user_for_root_or_plain_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "root", "no-such-user-here"):
        monkeypatch.setenv("SUDO_USER", name)
        assert user_behind_sudo() is None
