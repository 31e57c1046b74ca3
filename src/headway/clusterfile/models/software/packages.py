"""packages: where machines get Python packages from."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headway.domain.cluster import HEAD_PROXY, PackageSources
from headway.validation import syntax_rules
from headway.validation.field_types import FileSection, checked_by


def _index_fault(url: str) -> str:
    if "@" in url:
        return "has a user or password: every user of the cluster could read it"
    return syntax_rules.url_fault(url)


def _proxy_fault(proxy: str) -> str:
    return "" if proxy == HEAD_PROXY else _index_fault(proxy)


def _host_fault(host: str) -> str:
    name, _, port = host.removeprefix(".").partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        return "must be a host, or host:port"
    return syntax_rules.host_fault(name)


class PackagesPart(FileSection):
    """Where machines get Python packages from."""

    index: Annotated[str, checked_by(_index_fault)] | None = Field(
        None,
        description="Package index of pip and uv on all machines (default: PyPI).",
        examples=["https://pypi.example.org/simple"],
    )
    proxy: Annotated[str, checked_by(_proxy_fault, "head, or the URL of an HTTP proxy")] | None = Field(
        None,
        description="Proxy of builds of environments. head: Headway runs one on the head, for package indexes only (default: "
        "nodes connect directly).",
        examples=["head", "http://proxy.example.org:3128"],
    )
    hosts: list[Annotated[str, checked_by(_host_fault)]] = Field(
        default_factory=list,
        max_length=100,
        description="With proxy: head: further hosts that it connects to; .example.org is all hosts below that domain.",
        examples=[["download.example.org"]],
    )


def resolve_packages(part: PackagesPart) -> PackageSources:
    """Returns the section `packages`."""
    return PackageSources(part.index or "", part.proxy or "", tuple(part.hosts))
