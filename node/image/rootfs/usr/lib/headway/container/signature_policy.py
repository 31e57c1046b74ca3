"""The cluster's signature policy for images of registries: which files skopeo reads, and which requirement applies to an
image (containers-policy.json(5), containers-registries.d(5)). skopeo verifies the signatures.

The policy protects users from images that someone else changed in a registry. It does not restrict what users run: they
can always run files of their own.
"""

from __future__ import annotations

import hashlib
import json

from image_reference import Registry
from messages import Failed

POLICY = "/etc/headway/containers/policy.json"
REGISTRIES = "/etc/headway/containers/registries.d"
_ACCEPT = [{"type": "insecureAcceptAnything"}]


def skopeo_options() -> list[str]:
    """Returns the options that make skopeo use the cluster's policy and no other, also not one in the user's home."""
    return ["--policy", POLICY, "--registries.d", REGISTRIES]


def requirement_key(reference: Registry) -> str:
    """Returns a hash of the requirement for this image and of the image's repository, "" if no signature is required. A
    stored image that met the same requirement need not be verified again. Raises Failed."""
    try:
        with open(POLICY, encoding="utf-8") as file:
            policy = json.load(file)
        rules, name = policy["transports"]["docker"], f"{reference.host}/{reference.repository}"
        scope = name
        while scope and scope not in rules:
            scope = scope.rpartition("/")[0]
        requirement = rules[scope] if scope else policy["default"]
    except (OSError, ValueError, LookupError, TypeError):
        raise Failed(
            f"this node has no signature policy for images: {POLICY} can't be read",
            "an administrator writes it with `headway apply`",
        ) from None
    if requirement == _ACCEPT:
        return ""
    return hashlib.sha256(json.dumps([name, requirement], sort_keys=True).encode()).hexdigest()[:24]


def refusal(name: str, text: str) -> Failed | None:
    """Returns the error for an image that skopeo refused because of the policy, None for other messages of skopeo."""
    low = text.lower()
    if "unknown policy requirement type" in low or "invalid policy in" in low:
        return Failed(
            f"skopeo on this node does not know the signature policy {POLICY}",
            "an administrator installs skopeo 1.9 or later",
        )
    if "source image rejected" not in low:
        return None
    ask = "an administrator sets what is accepted with containers.signatures of the cluster file"
    if "rejected by policy" in low:
        return Failed(f"{name} is refused: the signature policy of this cluster accepts no images from there", ask)
    if "no signature exists" in low:
        return Failed(
            f"{name} is refused: it has no signature, and the signature policy of this cluster requires one",
            f"sign it with its key, for example with `cosign sign --recursive`; {ask}",
        )
    return Failed(
        f"{name} is refused: no signature of it is for this repository and by the key that this cluster requires", ask
    )
