"""The signature policy always states a default, and the longest scope has its own requirement."""

from __future__ import annotations

import json
from dataclasses import replace

import yaml

from headway.domain.machines.image_signatures import SignaturePolicy, SignatureRule
from headway.render.system import image_signatures
from tests.support.clusters.render_cases import cpu_cluster, gpu_cluster

ANYTHING, NOTHING = [{"type": "insecureAcceptAnything"}], [{"type": "reject"}]


def test_policy_without_rules_states_that_it_accepts_all_images() -> None:
    files = image_signatures.files(gpu_cluster())
    policy = json.loads(files[image_signatures.POLICY].text)
    assert policy == {"default": ANYTHING, "transports": {"docker": {}, "oci": {"": ANYTHING}}}
    assert yaml.safe_load(files[image_signatures.REGISTRIES].text) == {"docker": {}}


def test_signatures_are_required_and_looked_up_only_for_registries_with_a_key() -> None:
    rules = (
        SignatureRule("nvcr.io", "accept"),
        SignatureRule("docker.io", "reject"),
        SignatureRule("r.test:5000/team", "signed", "a2V5"),
    )
    files = image_signatures.files(replace(gpu_cluster(), image_signatures=SignaturePolicy("reject", rules)))
    policy = json.loads(files[image_signatures.POLICY].text)
    assert policy["default"] == NOTHING
    signed = {"type": "sigstoreSigned", "keyData": "a2V5", "signedIdentity": {"type": "matchRepository"}}
    assert policy["transports"]["docker"] == {"nvcr.io": ANYTHING, "docker.io": NOTHING, "r.test:5000/team": [signed]}
    assert policy["transports"]["oci"] == {"": ANYTHING}
    attachments = yaml.safe_load(files[image_signatures.REGISTRIES].text)
    assert attachments == {"docker": {"r.test:5000/team": {"use-sigstore-attachments": True}}}


def test_enroot_gets_no_policy_that_it_would_not_read() -> None:
    assert image_signatures.files(cpu_cluster()) == {}
