"""The node's part of the signature policy: which requirement applies, which stored images met it, and what is said."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

D = "sha256:" + "a" * 64
ACCEPT, REJECT = [{"type": "insecureAcceptAnything"}], [{"type": "reject"}]
SIGNED = [{"type": "sigstoreSigned", "keyData": "a2V5"}]
RULES = {"r.test/team": SIGNED, "r.test/team/open": ACCEPT, "r.test": ACCEPT}


@pytest.fixture
def policy(runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"default": REJECT, "transports": {"docker": RULES, "oci": {"": ACCEPT}}}))
    monkeypatch.setattr(runtime["signature_policy"], "POLICY", str(file))
    return file


def test_longest_scope_decides_whether_a_signature_is_required(runtime: dict[str, ModuleType], policy: Path) -> None:
    def key(image: str) -> str:
        return str(runtime["signature_policy"].requirement_key(runtime["image_reference"].parse(image)))

    assert key("r.test#other/x:1") == key("r.test#team/open/x:1") == key("r.test#teams/x") == ""
    signed = key("r.test#team/x:1")
    assert len(signed) == 24
    assert key("r.test#team/x:2") == signed
    assert key("r.test#team/y:1") not in ("", signed), "a signature holds for one repository"
    assert key("pytorch/pytorch:1") != ""  # the default
    changed = json.loads(policy.read_text())
    changed["transports"]["docker"]["r.test/team"] = [{**SIGNED[0], "keyData": "bmV3"}]
    policy.write_text(json.dumps(changed))
    assert key("r.test#team/x:1") not in ("", signed), "a new key"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"default": [], "transports": []}'])
def test_node_without_a_policy_runs_no_image_of_a_registry(
    runtime: dict[str, ModuleType], policy: Path, text: str
) -> None:
    policy.write_text(text)
    with pytest.raises(runtime["messages"].Failed, match="no signature policy for images"):
        runtime["signature_policy"].requirement_key(runtime["image_reference"].parse("x/y:1"))


def test_stored_image_is_used_only_if_it_met_the_same_requirement(
    runtime: dict[str, ModuleType], policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = runtime["image_store"]
    cache, imported = tmp_path / "cache" / ".containers", []
    kept = store.ImageStore(str(cache), "", {"HOME": str(tmp_path)})

    def build(_store: object, _folder: str, source: str, _name: str, _auth: str, draft: str, _digest: str) -> None:
        imported.append(source)
        Path(draft).write_text("hsqs")

    monkeypatch.setattr(store.ImageStore, "_build", build)
    monkeypatch.setattr(store.ImageStore, "_query_digest", lambda _store, reference, _auth: reference.digest)
    for image in ("r.test#open/x", "r.test#open/x", "r.test#team/x", "r.test#team/x", "r.test#team/y", "r.test#open/x"):
        path = kept.squashfs(runtime["image_reference"].parse(f"{image}@{D}"))
        assert path == str(cache / f"sha256-{'a' * 64}.sqsh")
    assert imported == [f"docker://r.test/{name}@{D}" for name in ("open/x", "team/x", "team/y")]


def test_skopeo_always_gets_the_policy_of_the_cluster(runtime: dict[str, ModuleType], policy: Path) -> None:
    words = runtime["signature_policy"].skopeo_options()
    assert words[:3] == ["--policy", str(policy), "--registries.d"]
    assert "--insecure-policy" not in words


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'msg="Source image rejected: Running image docker://r.test/x@sha256:00 is rejected by policy."',
            "accepts no images from there",
        ),
        ('msg="Source image rejected: A signature was required, but no signature exists"', "it has no signature"),
        (
            'msg="Source image rejected: cryptographic signature verification failed: invalid signature"',
            "by the key that this cluster requires",
        ),
        ('Source image rejected: Signature for identity "r.test/z" is not accepted', "for this repository"),
        ('msg="Error loading trust policy: invalid policy in \\"/x\\": Unknown policy requirement type"', "skopeo 1.9"),
    ],
)
def test_refused_image_is_explained(runtime: dict[str, ModuleType], text: str, says: str) -> None:
    said = runtime["signature_policy"].refusal("r.test/x:1", text)
    assert says in said.message + said.hint
    assert said.hint


def test_other_errors_of_a_registry_are_not_about_signatures(runtime: dict[str, ModuleType]) -> None:
    assert runtime["signature_policy"].refusal("r.test/x:1", "manifest unknown: signature") is None
