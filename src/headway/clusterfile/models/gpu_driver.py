"""The section `gpu` of the cluster file: NVIDIA's driver on owned machines, and its resolution."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from headway.domain.machines.gpu_driver import GpuDriver, PackageRepository
from headway.validation import syntax_rules
from headway.validation.field_types import FileSection, checked_by, value_error

_KEY_BEGIN, _KEY_END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
Suite = Annotated[str, Field(pattern=r"^(/|[A-Za-z0-9][A-Za-z0-9._/-]{0,99})$")]
Component = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$")]


def _repository_fault(url: str) -> str:
    if "@" in url:
        return "has a user or password: every user of the machines could read it"
    return syntax_rules.url_fault(url)


def _key_fault(key: str) -> str:
    text = key.strip()
    if "PRIVATE KEY" in text:
        return "is a private key"
    return "" if text.startswith(_KEY_BEGIN) and text.endswith(_KEY_END) else "is not an ASCII-armored public key"


class PackageRepositoryPart(FileSection):
    """A repository of Debian packages, for example NVIDIA's or a mirror of it."""

    url: Annotated[str, checked_by(_repository_fault)] = Field(
        description="URL of the repository.",
        examples=["https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"],
    )
    suite: Suite = Field("/", description="Its suite; / is a flat repository.")
    components: list[Component] = Field(
        default_factory=list,
        max_length=20,
        description="Its components; none for a flat repository.",
        examples=[["main"]],
    )
    key: Annotated[str, checked_by(_key_fault, "export it with gpg --armor --export")] = Field(
        description="File with the public key that signs it, or the key as text.", examples=["./nvidia.asc"]
    )

    @model_validator(mode="after")
    def _components_fit(self) -> PackageRepositoryPart:
        if (self.suite.endswith("/")) == bool(self.components):
            raise value_error(
                "a flat repository has no components, and every other has at least one",
                "for example suite: trixie with components: [main], or suite: / without",
            )
        return self


class GpuDriverPart(FileSection):
    """Provider ssh: NVIDIA's driver on your machines."""

    driver: Literal["keep", "install"] = Field(
        "keep",
        description="keep: use the driver that each machine has; install: install it and keep it at `branch`, on machines "
        "with apt. Nodes in service change by `headway roll`.",
    )
    branch: Annotated[str, Field(pattern=r"^[1-9][0-9]{2,3}$")] | None = Field(
        None, description="Branch of the driver (default: the newest that the repository has).", examples=["580"]
    )
    modules: Literal["open", "proprietary"] = Field(
        "open", description="Kernel modules; GPUs before Turing need proprietary ones."
    )
    repository: PackageRepositoryPart | None = Field(
        None, description="Repository of the driver (default: the machine's distribution, with Debian's non-free)."
    )
    dcgm: bool = Field(False, description="Install NVIDIA's DCGM too; the repository must have it.")

    @model_validator(mode="after")
    def _only_with_install(self) -> GpuDriverPart:
        if self.driver == "keep" and (self.branch or self.repository or self.dcgm):
            raise value_error(
                "has settings of an installation, and driver: keep installs nothing", "give driver: install"
            )
        return self


def resolve_gpu_driver(part: GpuDriverPart) -> GpuDriver:
    """Returns the section `gpu`."""
    source = part.repository
    return GpuDriver(
        install=part.driver == "install",
        branch=part.branch or "",
        open_modules=part.modules == "open",
        repository=None
        if source is None
        else PackageRepository(
            source.url, source.suite, tuple(source.components), tuple(source.key.strip().splitlines())
        ),
        dcgm=part.dcgm,
    )
