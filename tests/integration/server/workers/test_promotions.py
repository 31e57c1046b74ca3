"""A promotion checks gates, runs their jobs once, and sets the alias with a signed manifest, however often it is interrupted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.errors import NotAllowed, Unanswered
from headway.services.models import rounds
from headway.store.key_rotation import SEALED
from tests.support.servers.promotion_lab import EVALUATE, LAB, MODEL, Lab, ask, show, start_lab, statement

DATA = "c" * 64
RERUN: dict[str, Any] = {"gates": {"repeat": {"rerun": "loss", "tolerance": 0.1}}}


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    made = await start_lab(tmp_path)
    yield made
    await made.server.close()


async def test_version_that_passes_gets_the_alias_and_a_signed_manifest(lab: Lab) -> None:
    await lab.server.store.jobs.record(
        "lab", 7, person="eve", user="eve", kind="run", request={"git": {"commit": "a" * 40, "dirty": True}},
        facts={"datasets": [{"name": "books", "version": "1", "mount": "/datasets/books/1", "sha256": DATA}]}, audit={},
        datasets=[],
    )  # fmt: skip
    lab.mlflow.aliases["iris", "production"] = 2
    eve, asked = await ask(lab, {"gates": {"accuracy": {"metric": "accuracy", "min": 0.9}}})
    assert (asked["state"], asked["team"]) == ("pending", "red")
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], found["why"], found["former"], found["has_manifest"]) == ("promoted", "", 2, True)
    assert found["gates"] == [
        {"name": "accuracy", "state": "passed", "wants": "accuracy at least 0.9", "saw": "accuracy 0.95", "job_id": 0}
    ]
    assert lab.mlflow.aliases == {("iris", "production"): 1}
    told = await statement(lab, eve, asked["id"])
    assert [one["name"] for one in told["subject"]] == ["MLmodel", "data/model.pkl"]
    predicate = told["predicate"]
    assert predicate["model"] == {
        "cluster": "lab", "team": "red", "name": "iris", "version": 1, "alias": "production", "former": 2,
    }  # fmt: skip
    assert predicate["source"]["code"] == {"commit": "a" * 40, "dirty": True, "files": ""}
    assert predicate["source"]["datasets"] == [{"name": "books", "version": "1", "sha256": DATA}]
    assert (predicate["source"]["job"], predicate["source"]["run"], predicate["person"]) == (7, "r1", "eve")
    assert predicate["gates"][0]["saw"] == "accuracy 0.95"
    (notification,) = await lab.server.store.notifications.pending("lab", 0)
    assert (notification.kind, notification.title) == ("ModelPromoted", "lab: iris@1 is production")
    assert notification.text == "eve promoted red/iris@1 to production; before it was iris@2"


async def test_failed_gate_refuses_before_any_job_runs(lab: Lab) -> None:
    gates = {**EVALUATE, "gates": {**EVALUATE["gates"], "loss": {"metric": "loss", "max": 1.5}}}
    eve, asked = await ask(lab, gates)
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], found["why"]) == ("refused", "gate loss wants loss at most 1.5: loss 2")
    assert {gate["name"]: gate["state"] for gate in found["gates"]} == {"held-out": "skipped", "loss": "failed"}
    assert (lab.requests, lab.mlflow.aliases) == ([], {})
    assert (await eve.get(f"{LAB}/promotions/{asked['id']}/manifest")).status_code == 404
    (notification,) = await lab.server.store.notifications.pending("lab", 0)
    assert (notification.kind, notification.text) == ("ModelPromotionRefused", found["why"])


async def test_evaluation_runs_once_and_its_metric_decides(lab: Lab) -> None:
    eve, asked = await ask(lab, EVALUATE)
    await lab.round()
    await lab.round()
    found = await show(eve, asked["id"])
    assert (found["state"], found["gates"][0]["state"]) == ("running", "waiting")
    (request,) = lab.requests
    assert "HEADWAY_MODEL_URI=models:/iris/1" in request.script or request.env["HEADWAY_MODEL_URI"] == "models:/iris/1"
    assert "--account=red" in request.script
    lab.end(41, accuracy=0.97)
    found = await lab.rounds(eve, asked["id"])
    assert found["state"] == "promoted"
    assert found["gates"][0] == {
        "name": "held-out", "state": "passed", "wants": "accuracy at least 0.9", "saw": "accuracy 0.97", "job_id": 41,
    }  # fmt: skip
    assert len(lab.requests) == 1


@pytest.mark.parametrize(
    ("state", "metrics", "saw"),
    [("COMPLETED", {"accuracy": 0.5}, "accuracy 0.5"), ("COMPLETED", {}, "no value of accuracy"), ("FAILED", {}, "")],
)
async def test_evaluation_that_is_not_good_enough_refuses(
    lab: Lab, state: str, metrics: dict[str, float], saw: str
) -> None:
    eve, asked = await ask(lab, EVALUATE)
    await lab.rounds(eve, asked["id"])
    lab.end(41, state, **metrics)
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], lab.mlflow.aliases) == ("refused", {})
    assert saw in found["gates"][0]["saw"]
    assert found["gates"][0]["saw"].startswith(saw or "job evaluate failed: ")


async def test_refused_job_is_a_failed_gate(lab: Lab) -> None:
    eve, asked = await ask(lab, EVALUATE)
    lab.server.backend.answers["submit"] = NotAllowed("no more jobs today")
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], found["gates"][0]["saw"]) == ("refused", "job evaluate failed: no more jobs today")


async def test_interrupted_submission_is_repeated_with_the_same_tag(lab: Lab) -> None:
    eve, asked = await ask(lab, EVALUATE)
    await lab.round()
    lab.server.backend.answers["submit"] = Unanswered("the head does not answer")
    await lab.round()
    assert (await show(eve, asked["id"]))["why"] == "the head does not answer"
    lab.server.backend.answers["submit"] = lab.submit
    await lab.round()
    found = await show(eve, asked["id"])
    assert (found["state"], found["why"], len(set(lab.server.backend.tags))) == ("running", "", 1)


async def test_death_of_the_server_after_the_jobs_have_ended_repeats_the_decision(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve, asked = await ask(lab, EVALUATE)
    await lab.rounds(eve, asked["id"])
    lab.end(41, accuracy=0.97)
    change = lab.server.store.promotions.change

    async def killed(promotion: str, **values: Any) -> bool:
        if values.get("state") == "promoting":
            raise RuntimeError("killed")
        return await change(promotion, **values)

    with monkeypatch.context() as patched:
        patched.setattr(lab.server.store.promotions, "change", killed)
        await lab.round()
    assert (await show(eve, asked["id"]))["gates"][0]["state"] == "passed"
    assert (await lab.rounds(eve, asked["id"]))["state"] == "promoted"


@pytest.mark.parametrize("step", ["sign", "set_alias", "_notify"])
async def test_death_of_the_server_while_promoting_loses_and_repeats_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    eve, asked = await ask(lab, {})
    await lab.round()
    assert (await show(eve, asked["id"]))["state"] == "promoting"

    async def die(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(rounds, step, die)
        await lab.round()
    row = await lab.server.store.promotions.get("lab", asked["id"])
    assert row.state == "promoting"
    assert (await lab.rounds(eve, asked["id"]))["state"] == "promoted"
    if row.manifest:
        assert (await lab.server.store.promotions.get("lab", asked["id"])).manifest == row.manifest
    assert lab.mlflow.aliases == {("iris", "production"): 1}
    assert len(await lab.server.store.notifications.pending("lab", 0)) == 1


async def test_promotion_waits_while_mlflow_is_down(lab: Lab) -> None:
    eve, asked = await ask(lab, {})
    lab.mlflow.down = True
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], "the MLflow server does not answer" in found["why"]) == ("pending", True)
    lab.mlflow.down = False
    assert (await lab.rounds(eve, asked["id"]))["state"] == "promoted"


async def test_version_whose_files_are_gone_is_refused(lab: Lab) -> None:
    lab.mlflow.files.clear()
    eve, asked = await ask(lab, {})
    found = await lab.rounds(eve, asked["id"])
    assert found["state"] == "refused"
    assert found["why"] == f"the files of iris@1 are gone: MLflow has none in {MODEL}"


async def test_version_of_which_some_files_are_gone_is_refused(lab: Lab) -> None:
    lab.mlflow.files[f"{MODEL}/MLmodel"] = b"flavors: {}\nmodel_size_bytes: 1000\n"
    eve, asked = await ask(lab, {})
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], found["why"]) == ("refused", "files of iris@1 are gone: MLflow has 43 bytes of 1,000")


async def test_files_must_not_change_while_gates_are_checked(lab: Lab) -> None:
    eve, asked = await ask(lab, EVALUATE)
    await lab.rounds(eve, asked["id"])
    lab.mlflow.files[f"{MODEL}/data/model.pkl"] = b"other weights"
    lab.end(41, accuracy=0.97)
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], lab.mlflow.aliases) == ("refused", {})
    assert found["why"] == "the files of iris@1 changed while its gates were checked"


async def test_files_elsewhere_and_deleted_versions_are_refused(lab: Lab) -> None:
    lab.mlflow.versions["iris", 1] = ("r1", "file:///etc")
    eve, asked = await ask(lab, {})
    assert "not in the MLflow server of Headway" in (await lab.rounds(eve, asked["id"]))["why"]
    eve, asked = await ask(lab, {}, version=2)
    del lab.mlflow.versions["iris", 2]
    assert (await lab.rounds(eve, asked["id"]))["why"] == "there is no model iris@2"
    await ask(lab, {}, 404, version=3)
    await ask(lab, {}, 404, model="rose")


async def test_dry_run_decides_gates_without_jobs_and_stores_nothing(lab: Lab) -> None:
    gates = {**EVALUATE, "gates": {**EVALUATE["gates"], "loss": {"metric": "loss", "max": 1.5}}}
    eve, found = await ask(lab, gates, dry_run=True)
    assert (found["id"], found["state"]) == ("", "planned")
    assert [(gate["state"], gate["saw"]) for gate in found["gates"]] == [("waiting", ""), ("failed", "loss 2")]
    assert (await eve.get(f"{LAB}/promotions")).json() == []


async def test_second_promotion_to_the_alias_waits_for_the_end_of_the_first(lab: Lab) -> None:
    eve, asked = await ask(lab, {})
    _, refused = await ask(lab, {}, 409, version=2)
    assert asked["id"] in refused["detail"]
    await ask(lab, {}, version=2, to="staging")
    await lab.rounds(eve, asked["id"])
    await ask(lab, {}, version=2)


async def test_request_with_one_key_is_stored_once(lab: Lab) -> None:
    eve = await lab.server.client("eve", "member")
    sent = {"model": "iris", "version": 1, "to": "production"}
    headers = {"idempotency-key": "once"}
    first = await eve.post(f"{LAB}/promotions", json=sent, headers=headers)
    again = await eve.post(f"{LAB}/promotions", json=sent, headers=headers)
    assert first.json()["id"] == again.json()["id"]
    assert len((await eve.get(f"{LAB}/promotions")).json()) == 1


async def test_only_members_of_the_team_promote_and_look(lab: Lab) -> None:
    eve, asked = await ask(lab, {})
    carol = await lab.server.client("carol", "member")
    sent = {"model": "iris", "version": 1, "team": "red", "to": "production"}
    assert (await carol.post(f"{LAB}/promotions", json=sent)).status_code == 403
    assert (await carol.get(f"{LAB}/promotions/{asked['id']}")).status_code == 403
    assert (await carol.get(f"{LAB}/models/red/iris")).status_code == 403
    assert (await carol.get(f"{LAB}/promotions")).json() == []
    assert (await eve.get(f"{LAB}/models")).json()[0]["name"] == "iris"


async def test_approval_by_a_lead_lets_the_version_pass(lab: Lab) -> None:
    gates = {"gates": {"licence": {"approval": "lead"}}}
    eve, asked = await ask(lab, gates)
    found = await lab.rounds(eve, asked["id"])
    wants = "gate licence wants approval licence by a lead other than eve"
    assert (found["state"], found["why"]) == ("refused", f"{wants}: not approved")
    path, sent = f"{LAB}/models/red/iris/approvals", {"version": 1, "name": "licence", "note": "CC BY 4.0"}
    assert (await eve.post(path, json=sent)).status_code == 403
    ann = await lab.server.client("ann", "lead")
    answer = await ann.post(path, json=sent)
    assert (answer.status_code, answer.json()["roles"]) == (201, ["lead"])
    shown = (await eve.get(f"{LAB}/models/red/iris")).json()
    assert [(one["name"], one["person"], one["note"]) for one in shown["approvals"]] == [
        ("licence", "ann", "CC BY 4.0")
    ]
    eve, asked = await ask(lab, gates)
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], found["gates"][0]["saw"]) == ("promoted", "approved by ann")


async def test_approval_is_of_the_files_that_were_there(lab: Lab) -> None:
    ann = await lab.server.client("ann", "lead")
    await ann.post(f"{LAB}/models/red/iris/approvals", json={"version": 1, "name": "data"})
    lab.mlflow.files[f"{MODEL}/data/model.pkl"] = b"other weights"
    eve, asked = await ask(lab, {"gates": {"data": {"approval": "lead"}}})
    found = await lab.rounds(eve, asked["id"])
    assert found["gates"][0]["saw"] == "ann approved other files of this version"


async def test_rerun_repeats_the_source_job_within_tolerance(lab: Lab) -> None:
    await ask(lab, RERUN, 400)
    request = {
        "script": "#!/bin/sh\ntrain\n",
        "script_name": "train.sh",
        "args": ["--account=red"],
        "chdir": "/home/eve",
    }
    await lab.server.store.jobs.record(
        "lab", 7, person="eve", user="eve", kind="submit", request=request, facts={}, audit={}, datasets=[]
    )
    eve, asked = await ask(lab, RERUN)
    await lab.rounds(eve, asked["id"])
    (sent,) = lab.requests
    assert sent.script == request["script"]
    record = await lab.server.store.jobs.get("lab", 41)
    assert record is not None
    assert (record.kind, record.parent) == ("rerun", 7)
    lab.end(41, loss=2.1)
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], found["gates"][0]["saw"]) == ("promoted", "loss 2.1")
    ann = await lab.server.client("ann", "lead")
    sent = {"model": "iris", "version": 1, "to": "production", "gates": RERUN}
    assert (await ann.post(f"{LAB}/promotions", json=sent)).status_code == 403


async def test_key_is_sealed_and_the_same_after_it_is_asked_again(lab: Lab) -> None:
    eve = await lab.server.client("eve", "viewer")
    first = (await eve.get(f"{LAB}/signing-key")).json()
    assert first == (await eve.get(f"{LAB}/signing-key")).json()
    kept = await lab.server.store.secrets.of_cluster("lab")
    assert kept["model-signing-key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert any(table.name == "secrets" for table in SEALED)


async def test_cluster_without_mlflow_has_no_models(lab: Lab) -> None:
    lab.server.backend.clusters["lab"]["mlflow"] = False
    lab.server.state.clusters.forget("lab")
    _, refused = await ask(lab, {}, 400)
    assert refused["detail"] == "models are kept in MLflow, which lab does not have"


async def test_gates_that_the_alias_requires_can_not_be_left_out_or_replaced(lab: Lab) -> None:
    path = f"{LAB}/required-gates/red/production"
    required = {
        "jobs": {"audit": {"run": "/opt/audit"}},
        "gates": {
            "quality": {"metric": "accuracy", "min": 0.99},
            "audit": {"metric": "bias", "job": "audit", "max": 0.1},
        },
    }
    eve, ann = await lab.server.client("eve", "member"), await lab.server.client("ann", "lead")
    assert (await eve.put(path, json={"gates": required})).status_code == 403
    olga = await lab.server.client("olga", "operator")
    assert (await olga.put(path, json={"gates": required})).status_code == 403
    answer = await ann.put(path, json={"gates": required})
    assert (answer.status_code, answer.json()["person"]) == (200, "ann")
    assert (await eve.get(path)).json()["gates"] == answer.json()["gates"]
    _, asked = await ask(lab, {})
    found = await lab.rounds(eve, asked["id"])
    assert (found["state"], found["why"]) == ("refused", "gate quality wants accuracy at least 0.99: accuracy 0.95")
    _, refused = await ask(lab, {"gates": {"quality": {"metric": "accuracy", "min": 0}}}, 422)
    assert refused["faults"][0]["path"] == "gates.quality"
    lab.mlflow.runs["r1"][1]["accuracy"] = 1.0
    own = {"jobs": {"mine": {"run": "x"}}, "gates": {"mine": {"metric": "f1", "job": "mine", "min": 0}}}
    _, asked = await ask(lab, own, bundle="b" * 64)
    await lab.rounds(eve, asked["id"])
    assert {request.script_name: request.bundle for request in lab.requests} == {
        "gate-audit": "", "gate-mine": "b" * 64,
    }  # fmt: skip
    await ask(lab, {}, to="staging")
