"""A folder is bundled by its content, without excluded files, and the node computes the same digest."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from headway.errors import Refused
from headway.sdk import bundle as module
from headway.sdk.bundle import bundle_folder, git_state
from user_helper import bundles as node


def tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tree(tmp_path / "work", **{
        "train.py": "print(1)\n", "run.sh": "#!/bin/sh\n", "pkg/model.py": "x", "pkg/data/big.bin": "no",
        ".gitignore": "*.log\n/out/\n", "out/1": "no", "a.log": "no", "pkg/.gitignore": "data/\n!keep.log\n",
        "pkg/keep.log": "yes", ".git/HEAD": "no", "pkg/__pycache__/x.pyc": "no", "with space/ü.txt": "u",
    })  # fmt: skip
    (made / "run.sh").chmod(0o755)
    (made / "link").symlink_to("pkg/model.py")
    (made / "linked").symlink_to("pkg")
    return made


def test_bundle_applies_innermost_gitignore_first(folder: Path) -> None:
    assert bundle_folder(folder).files == (
        ".gitignore", "link", "linked", "pkg/.gitignore", "pkg/keep.log", "pkg/model.py", "run.sh", "train.py",
        "with space/ü.txt",
    )  # fmt: skip


def in_git(root: Path, **files: str) -> Path:
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=30)
    return tree(root, **files)


def kept_by_git(folder: Path) -> list[str]:
    words = ["git", "-C", str(folder), "ls-files", "-co", "--exclude-standard"]
    return sorted(subprocess.run(words, check=True, timeout=30, capture_output=True, text=True).stdout.splitlines())


def test_bundle_applies_gitignore_up_to_repository_root(tmp_path: Path) -> None:
    root = in_git(tmp_path / "repo", **{
        "../.gitignore": "train.py\n",  # outside: none of git's business
        ".gitignore": "# secrets\n.env\n/projects/a/data/\n*.ckpt\n/train.py\nprojects/a/src/*.tmp\n",
        "projects/.gitignore": "/b/\na/out\n!best.ckpt\n*.md\n",
        "projects/a/.gitignore": "!README.md\n",
        **{f"projects/a/{name}": "x" for name in (
            "train.py", ".env", "src/.env", "data/1.bin", "src/data/2", "last.ckpt", "best.ckpt", "README.md", "x.md",
            "out/1", "b/1", "src/y.tmp",
        )},
    })  # fmt: skip
    made = bundle_folder(root / "projects/a")
    assert made.files == (".gitignore", "README.md", "b/1", "best.ckpt", "src/data/2", "train.py")
    assert list(made.files) == kept_by_git(root / "projects/a")
    (tmp_path / "link").symlink_to(root / "projects/a")
    assert bundle_folder(tmp_path / "link").files == made.files
    in_git(root / "projects/a")  # a repository of its own: what lies around it is another's
    assert bundle_folder(root / "projects/a").files == tuple(kept_by_git(root / "projects/a"))
    assert ".env" in bundle_folder(root / "projects/a").files


@pytest.mark.parametrize("rule", ["out/", "/out", "*", "out/*\n!out/run"])
def test_explicitly_named_ignored_folder_is_bundled(tmp_path: Path, rule: str) -> None:
    names = ("model.pt", "sub/a.py", ".env", "sub/.env")
    root = in_git(tmp_path / "repo", **{".gitignore": f"{rule}\n", **{f"out/run/{name}": "x" for name in names}})
    assert bundle_folder(root / "out/run").files == tuple(sorted(names))
    with (root / ".gitignore").open("a") as rules:
        rules.write(".env\n")
    assert bundle_folder(root / "out/run").files == ("model.pt", "sub/a.py")  # what has a rule of its own stays out


@pytest.mark.parametrize("rule", ["exp/*", "**/exp/*", "/exp/*\n!.gitkeep", "/exp/*\n!/exp/.gitignore", "/exp/[!.]*"])
def test_folder_with_all_contents_ignored_is_bundled(tmp_path: Path, rule: str) -> None:
    names = ("model.pt", "sub/a.py")
    files = {f"exp/{name}": "x" for name in (*names, "sub/.env", ".gitkeep", ".gitignore", "later.bin")}
    root = in_git(tmp_path / "repo", **files, **{".gitignore": f"{rule}\n.env\n"})
    (root / "exp/.gitignore").write_text("*.bin\n")
    assert set(bundle_folder(root / "exp").files).issuperset(names)
    assert not {"sub/.env", "later.bin"}.intersection(bundle_folder(root / "exp").files), (
        "these have rules of their own"
    )


def test_partly_ignored_folder_bundles_only_kept_files(tmp_path: Path) -> None:
    files = {".gitignore": "exp/*\n!exp/*.py\n", "exp/a.py": "x", "exp/secret.txt": "x"}
    root = in_git(tmp_path / "repo", **files)
    assert bundle_folder(root / "exp").files == ("a.py",)


def test_refuses_folder_with_own_gitignore_excluding_everything(tmp_path: Path) -> None:
    for rules in ("*\n", "*\n!.gitignore\n"):
        with pytest.raises(Refused, match=r"work: its \.gitignore files exclude everything in it"):
            bundle_folder(tree(tmp_path / "work", **{".gitignore": rules, "a.py": "x"}))
    empty = tree(tmp_path / "empty", **{"__pycache__/x.pyc": "x"})
    assert bundle_folder(empty).files == ()


def test_digest_depends_on_content_and_mode_only(folder: Path, tmp_path: Path) -> None:
    first = bundle_folder(folder)
    os.utime(folder / "train.py", (1, 1))
    assert bundle_folder(folder.rename(tmp_path / "elsewhere")).digest == first.digest
    folder = tmp_path / "elsewhere"
    assert bundle_folder(folder).archive() == bundle_folder(folder).archive()
    (folder / "train.py").chmod(0o755)
    changed = bundle_folder(folder).digest
    assert changed != first.digest
    (folder / "train.py").write_text("print(2)\n")
    assert bundle_folder(folder).digest not in (first.digest, changed)


def test_node_stores_bundle_readonly_under_its_digest(folder: Path, tmp_path: Path) -> None:
    made = bundle_folder(folder)
    root = str(tmp_path / "root")
    assert node.keep_bundle(root, made.digest, b"") is False
    assert node.keep_bundle(root, made.digest, made.archive()) is True
    assert node.keep_bundle(root, made.digest, b"") is True
    kept = tmp_path / "root/bundles" / made.digest
    assert node.tree_digest(str(kept)) == made.digest
    assert not (kept / "train.py").stat().st_mode & 0o222
    assert not kept.stat().st_mode & 0o222
    assert (kept / "run.sh").stat().st_mode & 0o111
    assert [path.name for path in kept.parent.iterdir()] == [made.digest]


def test_non_utf8_file_names_are_transferred_unchanged(tmp_path: Path) -> None:
    """Of old archives, and of machines with another encoding: Linux takes any bytes."""
    work = tree(tmp_path / "work", **{"train.py": "x"})
    latin, inner = os.fsdecode(b"caf\xe9.txt"), os.fsdecode(b"d\xe9/caf\xe9.txt")
    tree(work, **{latin: "1", inner: "2"})
    (work / "link").symlink_to(latin)
    made = bundle_folder(work)
    root, job = str(tmp_path / "root"), tmp_path / "job"
    assert node.keep_bundle(root, made.digest, made.archive()) is True
    node.stage_bundle({"root": root, "bundle": made.digest, "work": str(job), "files": {}})
    assert sorted(os.fsencode(path.name) for path in job.iterdir()) == [b"caf\xe9.txt", b"d\xe9", b"link", b"train.py"]
    assert (str((job / "link").readlink()), (job / "link").read_text(), (job / inner).read_text()) == (latin, "1", "2")


def test_bundle_with_hard_links_is_stored(tmp_path: Path) -> None:
    """uv and conda make hard links, and so does `cp -l`."""
    work = tree(tmp_path / "work", **{"a.py": "1"})
    (work / "b.py").hardlink_to(work / "a.py")
    made = bundle_folder(work)
    assert node.keep_bundle(str(tmp_path / "root"), made.digest, made.archive()) is True


@pytest.mark.parametrize("now", ["more", "gone", "a program"])
def test_archive_refuses_file_changed_since_listing(tmp_path: Path, now: str) -> None:
    work = tree(tmp_path / "work", **{"train.py": "1", "train.log": "step 1"})
    made = bundle_folder(work)
    log = work / "train.log"
    if now == "gone":
        log.unlink()
    elif now == "more":
        log.write_text("step 1\nstep 2")
    else:
        log.chmod(0o755)
    with pytest.raises(Refused, match=r"train\.log (changed|can't be read)") as caught:
        made.archive()
    assert ".gitignore" in caught.value.hint


def test_bundle_refuses_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    work = tree(tmp_path / "work", **{"key.pem": "x"})
    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(Refused, match=r"key\.pem can't be read: Permission denied") as caught:
        bundle_folder(work)
    assert ".gitignore" in caught.value.hint


def test_error_with_non_utf8_name_is_printable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 0)
    with pytest.raises(Refused) as caught:
        bundle_folder(tree(tmp_path / "work", **{os.fsdecode(b"caf\xe9"): "1"}))
    assert "caf\ufffd (0.0 MiB)" in caught.value.hint
    str(caught.value).encode()  # as a terminal is given it


def test_job_copy_is_writable_and_bundle_stays_unchanged(folder: Path, tmp_path: Path) -> None:
    made = bundle_folder(folder)
    root, work, helper = str(tmp_path / "root"), tmp_path / "runs/train-1", str(tmp_path / "root/launch-1.py")
    node.keep_bundle(root, made.digest, made.archive())
    node.stage_bundle({"root": root, "bundle": made.digest, "work": str(work), "files": {helper: "text"}})
    (work / "train.py").write_text("changed")
    (work / "new").write_text("")
    assert (work / "link").is_symlink()
    node.stage_bundle({"root": root, "bundle": made.digest, "work": str(work), "files": {helper: "other"}})
    assert (work / "train.py").read_text() == "changed"  # a second step of the same run finds what the first left
    assert Path(helper).read_text() == "text"
    assert node.tree_digest(str(tmp_path / "root/bundles" / made.digest)) == made.digest


def test_existing_work_folder_needs_no_bundle_but_new_one_does(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline that took longer than bundles are kept is retried in its own folder."""

    def refuse(sentence: str) -> None:
        raise Refused(sentence)

    monkeypatch.setattr(node.identity, "refuse", refuse)
    made = bundle_folder(folder)
    root, work = tmp_path / "root", tmp_path / "runs/chain-1"
    node.keep_bundle(str(root), made.digest, made.archive())
    ask = {"root": str(root), "bundle": made.digest, "work": str(work), "files": {}}
    node.stage_bundle(ask)
    (work / "out").write_text("of step a")
    node.erase(str(root / "bundles" / made.digest))
    node.stage_bundle({**ask, "files": {str(root / "launch-2.py"): "text"}})
    assert (work / "out").read_text() == "of step a"
    assert (root / "launch-2.py").read_text() == "text"
    with pytest.raises(Refused, match="send them again"):
        node.stage_bundle({**ask, "work": str(tmp_path / "runs/chain-2")})
    assert not (tmp_path / "runs/chain-2").exists()


def test_removes_only_bundles_unused_for_long(tmp_path: Path) -> None:
    root, kept = tmp_path / "root", tmp_path / "root" / "bundles"
    digests = []
    for name in ("old", "used", "asked", "new"):
        made = bundle_folder(tree(tmp_path / name, **{"pkg/a.py": name}))
        node.keep_bundle(str(root), made.digest, made.archive())
        digests.append(made.digest)
    (kept / f"{digests[0]}.77").mkdir()  # of a transfer that was cut off
    for one in kept.iterdir():
        os.utime(one, (0, 0))
    _, used, asked, new = digests
    node.stage_bundle({"files": {}, "work": str(tmp_path / "runs" / "x"), "bundle": used, "root": str(root)})
    node.keep_bundle(str(root), asked, b"")
    again = bundle_folder(tree(tmp_path / "another", b="x"))
    os.utime(kept / new)
    node.keep_bundle(str(root), again.digest, again.archive())
    assert {one.name for one in kept.iterdir()} == {used, asked, new, again.digest}


@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_archive_is_not_stored(folder: Path, tmp_path: Path, damage: str) -> None:
    data = bundle_folder(folder).archive()
    digest = bundle_folder(folder).digest if damage == "cut" else "0" * 64
    with pytest.raises((EOFError, ValueError)):
        node.keep_bundle(str(tmp_path / "root"), digest, data[: len(data) // 2] if damage == "cut" else data)
    assert list((tmp_path / "root/bundles").iterdir()) == []


def packed(*members: tuple[str, bytes | str]) -> bytes:
    """An archive as a hostile client makes it: (name, content), or (name, target) of a link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("../up", b"x")], "name can't be used"),
        ([("/up", b"x")], "name can't be used"),
        ([("a/./b", b"x")], "name can't be used"),
        ([("out", ".."), ("out/up", b"x")], "exists"),
        ([("a", b"x"), ("a", b"y")], "exists"),
        ([("zeros", bytes(2**20))], "more than"),
        ([("half", bytes(2**19)), ("other", bytes(2**19))], "more than"),
        ([(f"f{n}", b"") for n in range(9)], "more than"),
    ],
)
def test_refuses_archive_with_unsafe_paths_or_excessive_size(
    members: list[tuple[str, bytes | str]],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node, "MOST_UNPACKED", 2**20 - 1)
    monkeypatch.setattr(node, "MOST_FILES", 4)
    with pytest.raises((ValueError, OSError), match=words):
        node.keep_bundle(str(tmp_path / "root"), "0" * 64, packed(*members))
    assert list((tmp_path / "root/bundles").iterdir()) == []
    assert not (tmp_path / "root/up").exists()


def test_refuses_oversized_bundle_and_names_largest_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "weights.bin").write_bytes(os.urandom(2**20 + 1))
    monkeypatch.setattr(module, "MAX_UNPACKED", 2**20)
    with pytest.raises(Refused) as caught:
        bundle_folder(folder)
    assert "the maximum is 1 MiB" in caught.value.message
    assert "weights.bin (1.0 MiB)" in caught.value.hint
    monkeypatch.setattr(module, "MAX_UNPACKED", 2**23)
    monkeypatch.setattr(module, "MAX_ARCHIVE", 2**20)
    with pytest.raises(Refused, match="compressed"):
        bundle_folder(folder).archive()


def test_git_state_reports_branch_commit_and_dirty_flag(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    tree(tmp_path, **{"a.py": "1"})
    for words in (
        ["init", "-q", "-b", "trunk"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, timeout=30)
    clean = git_state(tmp_path)
    assert clean
    assert (clean.branch, clean.dirty, len(clean.commit)) == ("trunk", False, 40)
    (tmp_path / "a.py").write_text("2")
    dirty = git_state(tmp_path)
    assert dirty
    assert (dirty.commit, dirty.dirty) == (clean.commit, True)
