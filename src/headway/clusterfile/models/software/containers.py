"""containers: how jobs run container images, and which images they may run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from headway.validation.field_types import FileSection, checked_by, value_error
from headway.validation.signature_keys import SCOPE, scope_fault, signature_key_fault


def _signature_key(value: str) -> str:
    problem, hint = signature_key_fault(value)
    if problem:
        raise value_error(problem, hint)
    return value.strip() + "\n"


Scope = Annotated[str, checked_by(scope_fault), WithJsonSchema({"type": "string", "pattern": f"^{SCOPE}$"})]


class SignatureRulePart(FileSection):
    """The rule for images of one registry, or of one path in it."""

    sigstore_key: Annotated[str, AfterValidator(_signature_key)] | None = Field(
        None,
        description="File with the public key in PEM format, or the key as text: images must have a sigstore signature of "
        "this key, as `cosign sign` and `skopeo copy --sign-by-sigstore-private-key` make it.",
        examples=["./cosign.pub"],
    )
    policy: Literal["accept", "reject"] | None = Field(
        None, description="accept: images need no signature. reject: no image is accepted."
    )

    @model_validator(mode="after")
    def _one_rule(self) -> SignatureRulePart:
        if (self.sigstore_key is None) == (self.policy is None):
            raise value_error("needs either sigstore_key or policy", "give one of the two")
        return self


class SignaturesPart(FileSection):
    """Which images of registries jobs may run. Local images (squashfs files, OCI layouts) need no signature."""

    default: Literal["accept", "reject"] = Field(
        "accept",
        description="Images of all other registries. accept: they need no signature. reject: they are not accepted.",
    )
    registries: dict[Scope, SignatureRulePart] = Field(
        default_factory=dict,
        max_length=200,
        description="HOST, HOST:PORT or HOST/PATH of a registry -> its rule; the longest match applies.",
        examples=[{"registry.example.org/team": {"sigstore_key": "./cosign.pub"}}],
    )


class ContainersPart(FileSection):
    """Container runtime for --container-image."""

    backend: Literal["builtin", "enroot"] | None = Field(
        None,
        description="builtin: part of Headway's node images (default there). enroot: Enroot and Pyxis, which must be "
        "installed on your machines; Headway configures them.",
    )
    signatures: SignaturesPart | None = Field(
        None, description="Which images of registries are accepted, by their signatures (default: all)."
    )
