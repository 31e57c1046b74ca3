"""Prepares a submission: the folder's files, the script's text, and the request."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from headway.domain.slurm.sbatch_options import DOS_LINES_HINT
from headway.errors import Refused
from headway.schemas.base import RequestModel
from headway.schemas.submission.job_field_types import GitIn
from headway.sdk.resources.bundles import Bundles

MAX_SCRIPT_BYTES = 4 * 1024 * 1024  # Slurm's own limit for a batch script


def send_files(bundles: Bundles, cluster: str, folder: Path, *, user: str = "") -> tuple[str, GitIn | None]:
    """Uploads the folder's files unless the cluster has them; returns (their digest, the git commit)."""
    from headway.sdk.bundle import bundle_folder, git_state

    bundle = bundle_folder(folder)
    if not bundles.exists(cluster, bundle.digest, user=user):
        bundles.upload(cluster, bundle.digest, bundle.archive(), user=user)
    return bundle.digest, git_state(folder)


def script_text(data: bytes, name: str) -> str:
    """Returns the text of a batch script that sbatch accepts. Raises Refused for any other."""
    if len(data) > MAX_SCRIPT_BYTES:
        raise Refused(
            f"{name}: larger than Slurm accepts ({MAX_SCRIPT_BYTES // 1024 // 1024} MiB)",
            hint="keep data in files: --with-files",
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{name}: not a text file", hint="submit a script that starts the program") from None
    if not text.strip():
        raise Refused(f"{name}: empty", hint="start it with #!/bin/bash")
    if not text.startswith("#!"):
        raise Refused(f"{name}: the first line must name an interpreter", hint="start it with #!/bin/bash")
    if "\r\n" in text:
        raise Refused(
            f"{name}: has Windows line endings, which sbatch rejects",
            hint=DOS_LINES_HINT,
        )
    return text


A = TypeVar("A", bound=RequestModel)


def build_request(kind: type[A], **fields: object) -> A:
    """Returns the request with these fields. Raises Refused with every fault, by field name."""
    from pydantic import ValidationError

    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        lines = [f"  {'-'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
        raise Refused("\n".join(["the request is not valid:", *lines])) from None
