"""Headway: one YAML file becomes a self-healing Slurm GPU cluster on machines you own.

Programs use `from headway import Client`. Nothing is imported before that name is used.

Not here: programs that run on machines (`node`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "__version__"]

if TYPE_CHECKING:
    from headway.sdk.async_client import AsyncClient
    from headway.sdk.client import Client


def __getattr__(name: str) -> object:
    if name == "Client":
        from headway.sdk.client import Client

        return Client
    if name == "AsyncClient":
        from headway.sdk.async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module 'headway' has no attribute {name!r}")
