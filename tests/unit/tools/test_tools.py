"""The lock file is complete, clean removes only Headway's own files, and the examples work as described."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import clean  # noqa: E402
import demo_steps  # noqa: E402
import setup  # noqa: E402


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, list[str]]:
    """Package -> its hashes."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in setup.LOCK.read_text().splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)==", line):
            name = plain(match[1])
            found[name] = []
        elif match := re.search(r"sha256:([0-9a-f]{64})", line):
            found[name].append(match[1])
    return found


def test_lock_contains_all_pyproject_packages_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
        "editables",
    ]
    names = {plain(re.split(r"[\[<>=~! ]", text)[0]) for text in wanted}
    lock = locked()
    assert names - set(lock) == set()
    assert [name for name, hashes in lock.items() if not hashes] == []


def test_lock_contains_no_urls() -> None:
    assert not re.search(r"://|--(extra-)?index|--find-links| @ ", setup.LOCK.read_text())


def test_clean_removes_its_clusters_from_ssh_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / "config" / "headway" / "ssh"
    ssh.mkdir(parents=True)
    for name in ("config", "demo.conf", "demo.known_hosts", "kept.conf", "elsewhere.conf"):
        (ssh / name).write_text("")
    state = tmp_path / "state"
    (state / "volumes" / "kept").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(clean, "listed", lambda *_: [{"Labels": {"headway.cluster": "demo"}}])
    assert clean.clusters(state) == {"demo", "kept"}
    clean.forget_ssh(clean.clusters(state))
    assert sorted(path.name for path in ssh.iterdir()) == ["config", "elsewhere.conf"]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder as a server leaves it, without a podman on this machine."""
    folder = tmp_path / "state"
    folder.mkdir()
    for name in (
        "client.json",
        "server.lock",
        "server.log",
        "server.log.1",
        "podman.json",
        "headway.db-wal",
        "secrets.key",
    ):
        (folder / name).write_text("")
    monkeypatch.setenv("HEADWAY_STATE", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("YES", raising=False)
    monkeypatch.setattr(clean, "ROOT", tmp_path)
    monkeypatch.setattr(clean, "podman", lambda *_: "")
    monkeypatch.setattr(clean, "test_states", list)
    return folder


def recorded(state: Path, *names: str) -> None:
    with closing(sqlite3.connect(state / "headway.db")) as db, db:
        db.execute("CREATE TABLE clusters (name TEXT)")
        db.executemany("INSERT INTO clusters VALUES (?)", [(name,) for name in names])


def test_clean_removes_state_with_only_demo_cluster(state: Path) -> None:
    recorded(state, "demo")
    assert clean.main([]) == 0
    assert not state.exists()


@pytest.mark.parametrize("kept_in", ["database", "inventory", "database that is damaged"])
def test_clean_refuses_state_with_other_clusters_unless_confirmed(
    state: Path, kept_in: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kept_in == "inventory":
        (state / "hosts").mkdir()
        (state / "hosts" / "lab.json").write_text("{}")
    elif kept_in == "database":
        recorded(state, "demo", "lab")
    else:
        (state / "headway.db").write_text("lab, but no database" * 100)
    assert clean.main([]) == 1
    assert (state / "client.json").exists()
    assert "lab" in (captured := capsys.readouterr().err) or "can't be read" in captured
    assert clean.main(["--yes"]) == 0
    assert not state.exists()


@pytest.mark.parametrize("words", [[], ["--yes"]])
def test_clean_never_removes_foreign_files(state: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (state / "thesis.txt").write_text("years")
    assert clean.main(words) == 1
    assert (state / "thesis.txt").read_text() == "years"
    assert "thesis.txt" in capsys.readouterr().err


def test_clean_stops_before_deleting_under_a_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "state" / "volumes"
    kept.mkdir(parents=True)
    monkeypatch.setattr(clean, "mounts_below", lambda folder: [f"{folder}/volumes"])
    monkeypatch.setattr(clean.subprocess, "run", lambda *_, **__: None)  # an umount that does not help
    with pytest.raises(SystemExit, match="still mounted"):
        clean.remove_folder(tmp_path / "state")
    assert kept.is_dir()


def test_setup_reports_all_gaps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(setup.os, "access", lambda *_: False)
    monkeypatch.setattr(setup.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(setup, "host_problems", lambda *_: [("no cgroups; mount them", True), ("an odd system", False)])
    fatal, notes = setup.problems("demo", ["podman", "runc"])
    assert [problem.split(";")[0] for problem in fatal] == [
        "not installed: podman, runc",
        f"{ROOT} is not writable",
        "no cgroups",
    ]
    assert notes == ["an odd system"]


def test_failed_setup_step_shows_output_and_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "LOG", tmp_path / "setup.log")
    with pytest.raises(setup.SetupError) as failed:
        setup.run(["sh", "-c", "echo no route; exit 3"], fix="is the index reachable?")
    assert [line.strip() for line in str(failed.value).splitlines()] == [
        "sh -c echo no route; exit 3 ended with 3; its last words:",
        "no route",
        f"all of it: {tmp_path / 'setup.log'}",
        "is the index reachable?",
    ]


def test_setup_unpacks_registry_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "REGISTRY_FOLDER", tmp_path / "docker-registry")
    monkeypatch.setattr(setup, "there", lambda _: False)
    asked: list[str] = []

    def run(argv: list[str], *, cwd: Path = ROOT, fix: str = "") -> None:
        asked.append(" ".join(argv[:2]))
        if argv[1] == "download" and "apt-get update" in asked:
            (cwd / "registry_1.deb").write_text("")
        elif argv[1] == "download":
            raise setup.SetupError("the lists are old")
        elif argv[0] == "dpkg-deb":
            assert not setup.registry_is_there(), "not before it is whole"
            program = Path(argv[-1]) / "usr" / "bin" / "docker-registry"
            program.parent.mkdir(parents=True)
            program.write_text("")

    monkeypatch.setattr(setup, "run", run)
    setup.unpack_registry()
    assert asked == ["apt-get download", "apt-get update", "apt-get download", "dpkg-deb -x"]
    assert setup.registry_is_there()
    assert [path.name for path in tmp_path.iterdir()] == ["docker-registry"]


def test_recognizes_training_step_lines() -> None:
    found = demo_steps.STEP.match("step 120 loss 1.873 steps_per_s 9.1")
    assert found is not None
    assert found.groups() == ("120", "1.873")
    assert demo_steps.STEP.match("the step 120 loss 1.873") is None


def test_embed_example_parts_cover_corpus_exactly_once(tmp_path: Path) -> None:
    script = ROOT / "examples" / "embed.py"
    for part in range(3):
        words = [
            "--part",
            str(part),
            "--parts",
            "3",
            "--corpus",
            str(ROOT / "examples" / "data"),
            "--into",
            str(tmp_path),
        ]
        subprocess.run([sys.executable, str(script), *words], check=True, capture_output=True)
    rows = [
        json.loads(line) for file in sorted(tmp_path.glob("part-*.jsonl")) for line in file.read_text().splitlines()
    ]
    texts = " ".join(file.read_text() for file in sorted((ROOT / "examples" / "data").glob("*.txt")))
    assert len(rows) == len([part for part in texts.replace("\n", " ").split(".") if part.strip()])
    assert all(len(row["vector"]) == 64 for row in rows)


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.s*")), ids=lambda path: path.name)
def test_example_scripts_parse(script: Path) -> None:
    assert script.read_text().startswith("#!/bin/bash\n")
    subprocess.run(["bash", "-n", str(script)], check=True, capture_output=True)
