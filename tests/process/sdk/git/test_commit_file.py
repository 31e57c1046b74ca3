"""Cluster files from commits, served by a real git daemon on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.errors import HeadwayError, InvalidSpec, NotFound, Refused, Unreachable
from headway.sdk.git import commit_file
from headway.sdk.git.commit_file import fetched_file, load_from_git, shown_url

LAB = "name: lab\nplan: cpu-64\nnodes: 2\nssh_keys: [keys/ann.pub]\n"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFk1vmYVDGuINT0fdFtH0gJmVvw4e5LJbCGYwNnQ9QWn ann"
ENV = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
}


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, env=ENV, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def commit(work: Path, files: dict[str, str]) -> str:
    """Commits these files and returns the hash."""
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "--allow-empty", "-m", "x")
    return git(work, "rev-parse", "HEAD")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with a cluster file, a key next to it, and a second file in a folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "--quiet", "-b", "main")
    commit(folder, {"cluster.yaml": LAB, "keys/ann.pub": KEY, "sites/two.yaml": LAB.replace("lab", "two")})
    return folder


@pytest.fixture
def daemon(work: Path) -> Iterator[str]:
    """The address of the repository at a git daemon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(git(work, "--exec-path")) / "git-daemon"  # `git daemon` would be a parent that may leave it running
    argv = [
        str(program),
        "--export-all",
        "--listen=127.0.0.1",
        f"--port={port}",
        f"--base-path={work.parent}",
        "--verbose",
    ]
    with subprocess.Popen(argv, env=ENV, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Ready to rumble" in line:
                break
        try:
            yield f"git://127.0.0.1:{port}/work/.git"
        finally:
            process.terminate()


def test_the_file_of_the_default_branch_comes_with_its_commit_and_the_key_next_to_it(daemon: str, work: Path) -> None:
    document = load_from_git(daemon, "", "cluster.yaml")
    assert (document.text, document.spec["ssh_keys"]) == (LAB, [KEY])
    assert document.origin is not None
    origin = document.origin
    assert (origin.url, origin.commit, origin.path) == (daemon, git(work, "rev-parse", "HEAD"), "cluster.yaml")


def test_a_branch_a_tag_and_a_hash_name_a_commit(daemon: str, work: Path) -> None:
    first = git(work, "rev-parse", "HEAD")
    git(work, "tag", "-a", "v1.0", "-m", "one")
    git(work, "checkout", "--quiet", "-b", "team/next")
    second = commit(work, {"cluster.yaml": LAB.replace("nodes: 2", "nodes: 3")})
    for ref, wanted, nodes in (("v1.0", first, 2), ("main", first, 2), ("team/next", second, 3), (first, first, 2)):
        document = load_from_git(daemon, ref, "cluster.yaml")
        assert (document.origin and document.origin.commit, document.spec["nodes"]) == (wanted, nodes)


def test_another_path_is_read(daemon: str) -> None:
    with fetched_file(daemon, "", "sites/two.yaml") as found:
        assert found.file.read_text().startswith("name: two")
        folder = found.file.parent
    assert not folder.exists(), "nothing stays"


@pytest.mark.parametrize(
    ("ref", "path", "text"),
    [
        ("nope", "cluster.yaml", "has no nope"),
        ("", "lab.yaml", "has no lab.yaml"),
        ("", "sites", "is a folder"),
        ("", "link.yaml", "is a symbolic link"),
    ],
)
def test_what_is_missing_is_said(daemon: str, work: Path, ref: str, path: str, text: str) -> None:
    (work / "link.yaml").symlink_to("/etc/passwd")
    commit(work, {})
    with pytest.raises((NotFound, Refused), match=text), fetched_file(daemon, ref, path):
        pass


def test_a_repository_that_is_not_there_is_said_with_gits_reason(daemon: str) -> None:
    with (
        pytest.raises(Unreachable, match=r"git can't read .*repository not exported"),
        fetched_file(daemon.replace("/work/", "/none/"), "", "cluster.yaml"),
    ):
        pass


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c touch% {mark}",
        "ext::touch {mark}",
        "--upload-pack=touch {mark}",
        "-u touch {mark}",
        "fd::17",
        "ssh://-oProxyCommand=touch {mark}/x",
        "ssh://ann@-oProxyCommand=touch {mark}/x",
        "-oProxyCommand=touch:x",
        "persistent-https://example.org/x",
        "git@host:x::y",
        "",
    ],
)
def test_an_address_that_would_run_a_command_is_refused(tmp_path: Path, url: str) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(Refused, match="--from-git"), fetched_file(url.format(mark=mark), "", "cluster.yaml"):
        pass
    assert not mark.exists()


@pytest.mark.parametrize(
    "ref",
    [
        "--upload-pack=touch x",
        "-x",
        "a b",
        "a..b",
        "main:evil",
        "+main",
        "a@{0}",
        "a.lock",
        "a//b",
        "$(id)",
        "x/",
        "^main",
    ],
)
def test_a_ref_that_is_none_is_refused(daemon: str, ref: str) -> None:
    with pytest.raises(Refused, match="--ref"), fetched_file(daemon, ref, "cluster.yaml"):
        pass


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./x", "a\nb"])
def test_a_path_that_leaves_the_repository_is_refused(daemon: str, path: str) -> None:
    with pytest.raises(Refused, match="--path"), fetched_file(daemon, "", path):
        pass


def test_git_itself_is_told_to_use_no_other_transport(daemon: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that the person's own settings turn into ext:: is refused by git."""
    mark = work / "mark"
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.ext::touch {mark} .insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", daemon)
    with pytest.raises(Unreachable, match="transport 'ext' not allowed"), fetched_file(daemon, "", "cluster.yaml"):
        pass
    assert not mark.exists()


def test_nothing_of_the_repository_is_executed(daemon: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter of .gitattributes that the person's settings know would run at a checkout."""
    mark = work.parent / "mark"
    commit(work, {".gitattributes": "* filter=evil\n"})
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "filter.evil.smudge")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", f"touch {mark}; cat")
    assert load_from_git(daemon, "", "cluster.yaml").text == LAB
    assert not mark.exists()
    git(work, "-c", f"filter.evil.smudge=touch {mark}; cat", "clone", "--quiet", ".", str(work.parent / "copy"))
    assert mark.exists(), "a checkout would have run it"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ('hosts: {from: "touch mark"}', "hosts.from"),
        ("hosts: {file: /etc/passwd}", "hosts.file"),
        ("ssh_keys: [/etc/passwd]", r"ssh_keys\[0\]"),
        ("ssh_keys: [../outside.pub]", r"ssh_keys\[0\]"),
        ("ssh_keys: [~/.ssh/id_ed25519.pub]", r"ssh_keys\[0\]"),
        ("users: {ann: {ssh_keys: [~/x.pub]}}", r"users.ann.ssh_keys\[0\]"),
        ("gpu: {repository: {key: /etc/x.asc}}", "gpu.repository.key"),
        ("backup: {to: backups}", "backup.to"),
        ("storage: {datasets: [{name: x, path: data}]}", r"storage.datasets\[0\].path"),
    ],
)
def test_a_file_of_a_commit_names_no_file_of_this_machine_and_no_command(
    daemon: str, work: Path, change: str, text: str
) -> None:
    base = "name: lab\nplan: cpu-64\nnodes: 2\n"
    commit(work, {"cluster.yaml": f"{base}{change}\n"})
    with pytest.raises(InvalidSpec, match=text):
        load_from_git(daemon, "", "cluster.yaml")
    assert not (work / "mark").exists()


def test_a_folder_of_this_machine_is_a_repository_too_and_its_file_must_be_committed(work: Path) -> None:
    assert load_from_git(str(work), "", "cluster.yaml").spec["nodes"] == 2
    (work / "cluster.yaml").write_text(LAB.replace("nodes: 2", "nodes: 9"))
    with pytest.raises(Refused, match=r"cluster.yaml in .* has changes that are not committed"):
        load_from_git(str(work), "", "cluster.yaml")
    git(work, "checkout", "--quiet", "cluster.yaml")
    (work / "elsewhere").write_text("x")
    assert load_from_git(str(work), "", "cluster.yaml").spec["nodes"] == 2, "other files may differ"


def test_a_fetch_has_a_time_limit(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and says nothing."""
    monkeypatch.setattr(commit_file, "FETCH_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"git://127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(Unreachable, match="was not fetched within"), fetched_file(url, "", "cluster.yaml"):
            pass


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ann:secret@example.org/x.git", "https://example.org/x.git"),
        ("https://secret@example.org/x.git", "https://example.org/x.git"),
        ("ssh://git@example.org/x.git", "ssh://git@example.org/x.git"),
        ("git@example.org:x.git", "git@example.org:x.git"),
        ("https://[bad", "https://[bad"),
    ],
)
def test_a_password_in_the_address_is_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_password_in_the_address_is_in_no_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(HeadwayError) as caught, fetched_file(f"http://ann:secret@127.0.0.1:{port}/x.git", "", "a.yaml"):
        pass
    assert "secret" not in str(caught.value)
