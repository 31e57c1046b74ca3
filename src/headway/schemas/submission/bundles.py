"""Bundles of a folder's files that a job works in."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class BundleOut(ResponseModel):
    """A bundle of a folder's files, addressed by the digest of its content."""

    digest: str
    present: bool  # true if the cluster already has it for this user
