"""The signature policy of container images, in the formats containers-policy.json(5) and containers-registries.d(5).

The files are in a folder of their own, because /etc/containers belongs to the packages and programs of the machine. The
container runtime (node/image/rootfs/usr/lib/headway/container) names them to skopeo, so neither the machine's policy nor
one in a user's home applies."""

from __future__ import annotations

import json

from headway.domain.cluster import Cluster
from headway.domain.machines.image_signatures import SignaturePolicy, SignatureRule
from headway.domain.machines.managed_file import File
from headway.render.escaping import script

POLICY = "/etc/headway/containers/policy.json"
REGISTRIES = "/etc/headway/containers/registries.d/headway.yaml"
_ACCEPT = {"type": "insecureAcceptAnything"}
_REJECT = {"type": "reject"}


def files(cluster: Cluster) -> dict[str, File]:
    """Returns the files of the policy; none for clusters whose containers are not started by Headway's runtime."""
    if cluster.containers != "builtin":
        return {}
    signatures = cluster.image_signatures
    return {POLICY: File(policy_json(signatures)), REGISTRIES: File(registries_yaml(signatures))}


def policy_json(signatures: SignaturePolicy) -> str:
    """Returns policy.json. It always states a default. Local images (`oci`) need no signature."""
    policy = {
        "default": [_ACCEPT if signatures.default == "accept" else _REJECT],
        "transports": {
            "docker": {rule.scope: [_requirement(rule)] for rule in signatures.rules},
            "oci": {"": [_ACCEPT]},
        },
    }
    return json.dumps(policy, indent=2) + "\n"


def _requirement(rule: SignatureRule) -> dict[str, object]:
    if rule.policy != "signed":
        return dict(_ACCEPT if rule.policy == "accept" else _REJECT)
    # matchRepository: signatures of cosign contain no tag.
    return {"type": "sigstoreSigned", "keyData": rule.key, "signedIdentity": {"type": "matchRepository"}}


def registries_yaml(signatures: SignaturePolicy) -> str:
    """Returns the file for registries.d: the signatures are next to the images in the registry."""
    scopes = [json.dumps(rule.scope) for rule in signatures.rules if rule.policy == "signed"]
    if not scopes:
        return script("docker: {}")
    return script("docker:", *(f"  {scope}: {{use-sigstore-attachments: true}}" for scope in scopes))
