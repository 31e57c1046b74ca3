"""plan and apply of a cluster file from a commit of a local repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headway.schemas.clusters import ChangeSetOut, OriginOut
from tests.support.cli_fakes import Cli, change, cli, cluster, event, operation

__all__ = ["cli"]  # a fixture


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "clusters"
    folder.mkdir()
    (folder / "cluster.yaml").write_text("name: lab\nplan: h100-8\nnodes: 4\n")
    for words in (
        ("init", "--quiet", "-b", "main"),
        ("add", "."),
        ("-c", "user.name=ann", "-c", "user.email=ann@example.org", "commit", "--quiet", "-m", "lab"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=60)
    return folder


def _head(folder: Path) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, timeout=60, capture_output=True, text=True
    )
    return done.stdout.strip()


def _ready(cli: Cli, found: ChangeSetOut) -> None:
    api = cli.api
    api.on("me", None).on("clusters.plan", found).on("clusters.apply", operation()).on("operations.list", [])
    api.on("operations.events", lambda *_, **__: iter([event(1, "lab-1-2", "slurmd is up", at=1012.34)]))
    api.on("operations.get", operation("done", finished_at=1020.0))


def test_the_commit_is_shown_and_sent_with_the_file(cli: Cli, repository: Path) -> None:
    _ready(cli, ChangeSetOut(cluster="lab", changes=[change("file.write", "lab-head", "x")], digest="d1"))
    done = cli("apply", "--from-git", str(repository))
    head = _head(repository)
    assert (done.code, done.err) == (0, f"cluster.yaml of commit {head} of {repository}\n")
    ((args, _),) = cli.api.named("clusters.apply")
    assert (args[0].origin.commit, args[0].origin.path, args[0].spec["name"]) == (head, "cluster.yaml", "lab")


@pytest.mark.parametrize("same", [True, False])
def test_a_new_commit_without_changes_is_applied_so_that_status_names_it(
    cli: Cli, repository: Path, same: bool
) -> None:
    _ready(cli, ChangeSetOut(cluster="lab", changes=[], why_empty="everything is as the file says"))
    known = OriginOut(url=str(repository), commit=_head(repository) if same else "0" * 40, path="cluster.yaml")
    cli.api.on("clusters.get", cluster(origin=known))
    assert cli("apply", "--from-git", str(repository)).code == 0
    assert bool(cli.api.named("clusters.apply")) is not same


def test_plan_reads_a_commit_too(cli: Cli, repository: Path) -> None:
    _ready(cli, ChangeSetOut(cluster="lab", changes=[], why_empty="everything is as the file says"))
    assert cli("plan", "--from-git", str(repository), "--ref", "main").code == 0
    ((args, _),) = cli.api.named("clusters.plan")
    assert args[0].origin.ref == "main"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--ref", "main"], "--ref selects from a repository: give it with --from-git"),
        (["--path", "x.yaml"], "--path selects from a repository"),
        (["other.yaml", "--from-git", "/srv/x"], "name the file in the repository with --path"),
    ],
)
def test_options_that_do_not_fit_are_refused(cli: Cli, words: list[str], text: str) -> None:
    done = cli("apply", *words)
    assert (done.code, text in " ".join(done.err.split())) == (2, True)


def test_status_names_the_commit(cli: Cli) -> None:
    from headway.cli.commands.cluster.status import _headlines
    from headway.cli.output.terminal import Terminal

    origin = OriginOut(url="https://example.org/x.git", commit="a" * 40, path="lab.yaml", scaled=True)
    lines = _headlines(cluster(origin=origin), Terminal(colours=False, width=None, unicode=True))
    assert "applied: commit aaaaaaaaaaaa, lab.yaml of https://example.org/x.git; scaled since" in lines
