"""Which container images of registries the nodes accept, and whose signatures they require."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SignatureRule:
    """The rule for the images of a registry, or of one path in it."""

    scope: str  # HOST[:PORT][/PATH]
    policy: str  # "signed" | "accept" | "reject"
    key: str = ""  # of "signed": the public key in PEM, as base64


@dataclass(frozen=True, slots=True)
class SignaturePolicy:
    """Rules for images of registries; the rule with the longest matching scope applies."""

    default: str = "accept"  # images for which there is no rule: "accept" | "reject"
    rules: tuple[SignatureRule, ...] = ()
