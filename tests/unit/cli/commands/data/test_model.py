"""model promotes versions, shows gates, and verifies manifests without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.promotions.gate_results import GateResult
from headway.jobs.promotions.manifest import Promoted, Source, promotion_statement
from headway.schemas.storage.models import ApprovalOut, ModelOut, PromotionOut, RequiredGatesOut
from headway.signed_statement import envelope, new_signing_key, public_key, read_signing_key
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture

IRIS = {
    "name": "iris",
    "team": "red",
    "aliases": {"production": 2},
    "versions": [
        {"version": 3, "created_at": 1, "job": 41, "metrics": {"accuracy": 0.95123, "nan": None}},
        {"version": 2, "created_at": 1, "aliases": ["production"], "job": 40},
    ],
    "approvals": [{"name": "licence", "version": 3, "person": "ann", "roles": ["lead"], "files": "f", "at": 1}],
}
PROMOTION = {
    "id": "m-1", "cluster": "lab", "team": "red", "model": "iris", "version": 3, "alias": "production", "person": "eve",
    "user": "eve", "created_at": 1, "state": "pending",
}  # fmt: skip
FAILED = {"name": "held-out", "state": "failed", "wants": "accuracy at least 0.9", "saw": "accuracy 0.5", "job_id": 42}


def promotion(**fields: Any) -> PromotionOut:
    return PromotionOut.model_validate({**PROMOTION, **fields})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Path:
    monkeypatch.chdir(tmp_path)
    cli.api.on("clusters.only_name", "lab").on("models.list", [ModelOut.model_validate(IRIS)])
    cli.api.on("models.get", ModelOut.model_validate(IRIS))
    return tmp_path


def test_show_lists_versions_with_jobs_metrics_and_approvals(cli: Cli) -> None:
    shown = cli("model", "show", "iris").out
    assert "iris of team red on lab" in shown
    for text in ("41", "accuracy 0.9512", "licence: ann", "production"):
        assert text in shown
    assert "nan" not in shown
    assert "production: 2" in cli("model", "ls").out


def test_promote_waits_and_a_refusal_is_exit_code_one(cli: Cli, folder: Path) -> None:
    (folder / "gates.yaml").write_text("gates:\n  accuracy: {metric: accuracy, min: 0.9}\n")
    why = "gate held-out wants accuracy at least 0.9: accuracy 0.5"
    cli.api.on("models.promote", promotion()).on(
        "models.wait", promotion(state="refused", why=why, gates=[FAILED], ended_at=2)
    )
    done = cli("model", "promote", "iris@latest", "--to", "production", "--gates", "gates.yaml")
    assert done.code == 1
    assert f"red/iris@3 to production (m-1), asked by eve: refused: {why}" in done.out
    assert "accuracy 0.5" in done.out
    ((args, _),) = cli.api.named("models.promote")
    assert (args[1].version, args[1].team, args[1].to, args[1].bundle) == (3, "red", "production", "")
    assert args[1].gates == {"gates": {"accuracy": {"metric": "accuracy", "min": 0.9}}}


def test_promoted_version_names_its_manifest_and_the_former_one(cli: Cli) -> None:
    cli.api.on("models.promote", promotion()).on(
        "models.wait", promotion(state="promoted", former=2, has_manifest=True)
    )
    done = cli("model", "promote", "red/iris@3", "--to", "production")
    assert done.code == 0
    assert "before, production was iris@2" in done.out
    assert "headway model manifest m-1 > manifest.json" in done.out
    waiting = cli("model", "promote", "iris@3", "--to", "production", "--no-wait")
    assert (waiting.code, "headway model promotions m-1" in waiting.err) == (0, True)


def test_dry_run_does_not_wait(cli: Cli) -> None:
    cli.api.on("models.promote", promotion(id="", state="planned", gates=[FAILED]))
    done = cli("model", "promote", "iris@3", "--to", "production", "--dry-run")
    assert (done.code, "planned" in done.out) == (1, True)


def test_wrong_versions_and_names_are_told(cli: Cli) -> None:
    assert "write NAME@VERSION" in cli("model", "promote", "iris", "--to", "production").err
    assert "has no model rose" in cli("model", "promote", "rose@1", "--to", "production").err
    assert "latest" in cli("model", "promote", "iris@3", "--to", "latest").err
    assert "gates.yaml: no such file" in cli("model", "promote", "iris@3", "--to", "a", "--gates", "gates.yaml").err


def test_approve_prints_the_roles(cli: Cli) -> None:
    given = {"name": "licence", "version": 3, "person": "ann", "roles": ["lead"], "files": "f", "at": 1}
    cli.api.on("models.approve", ApprovalOut.model_validate(given))
    assert "ann approves licence of iris@3 as lead" in cli("model", "approve", "iris@3", "licence").out


def manifest(folder: Path) -> Path:
    """Writes a model, its manifest and the public key."""
    (folder / "model" / "data").mkdir(parents=True)
    (folder / "model" / "data" / "weights").write_bytes(b"w")
    digest = "50e721e49c013f00c62cf59f2163542a9d8df02464efeb615d31051b0fddc326"
    gate = GateResult("accuracy", "passed", "accuracy at least 0.9", "accuracy 0.95")
    source = Source("r1", 41, "eve", commit="a" * 40, datasets=[{"name": "books", "version": "1", "sha256": "c" * 64}])
    told = Promoted("m-1", "lab", "red", "iris", 3, "production", "eve", 1.0, 2.0, 2, source, [gate])
    key = new_signing_key()
    (folder / "lab.pub").write_text(public_key(key))
    statement = json.dumps(promotion_statement(told, {"data/weights": digest})).encode()
    (folder / "manifest.json").write_text(json.dumps(envelope(statement, read_signing_key(key))))
    return folder / "manifest.json"


def test_verify_tells_the_origin_and_compares_files(cli: Cli, folder: Path) -> None:
    manifest(folder)
    done = cli("model", "verify", "manifest.json", "--key", "lab.pub", "--files", "model")
    assert done.code == 0, done.err
    for line in (
        "the signature is valid", "model     red/iris@3 on lab, promoted to production", "code      commit aaaa",
        "dataset   books@1  cccc", "gate      accuracy: accuracy at least 0.9; saw accuracy 0.95",
        "files     1; those in the folder are the same",
    ):  # fmt: skip
        assert line in done.out
    (folder / "model" / "data" / "weights").write_bytes(b"x")
    (folder / "model" / "more").touch()
    changed = cli("model", "verify", "manifest.json", "--key", "lab.pub", "--files", "model")
    assert changed.code == 1
    assert "data/weights differs" in changed.err
    assert "more is not in the manifest" in changed.err


def test_verify_refuses_symbolic_links(cli: Cli, folder: Path) -> None:
    manifest(folder)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "evil.py").write_text("x")
    (folder / "model" / "code").symlink_to(folder / "elsewhere")
    done = cli("model", "verify", "manifest.json", "--key", "lab.pub", "--files", "model")
    assert (done.code, "code is a symbolic link; copy the file itself" in done.err) == (1, True)


def test_verify_refuses_another_key_and_another_file(cli: Cli, folder: Path) -> None:
    manifest(folder)
    (folder / "other.pub").write_text(public_key(new_signing_key()))
    assert "the signature does not fit" in cli("model", "verify", "manifest.json", "--key", "other.pub").err
    assert "no signed manifest" in cli("model", "verify", "lab.pub", "--key", "lab.pub").err
    assert "can't be read" in cli("model", "verify", "none.json", "--key", "lab.pub").err


def test_gates_of_an_alias_are_shown_set_and_removed(cli: Cli, folder: Path) -> None:
    (folder / "gates.yaml").write_text("gates:\n  accuracy: {metric: accuracy, min: 0.9}\n")
    document = {"gates": {"accuracy": {"metric": "accuracy", "min": 0.9}}}
    known = RequiredGatesOut(team="red", alias="production", gates=document, person="ann")
    cli.api.on("models.required_gates", known).on("models.require_gates", known)
    told = "gates that production requires in team red: accuracy, set by ann"
    assert told in cli("model", "gates", "red", "production").out
    assert told in cli("model", "gates", "red", "production", "--set", "gates.yaml").out
    cli("model", "gates", "red", "production", "--remove")
    assert [args[3].gates for args, _ in cli.api.named("models.require_gates")] == [document, {}]
    assert "not both" in cli("model", "gates", "red", "production", "--set", "gates.yaml", "--remove").err
