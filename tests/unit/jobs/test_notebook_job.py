"""The job that runs a notebook."""

from __future__ import annotations

from headway.domain.access import credential_redaction
from headway.jobs import notebook_job
from headway.jobs.submission import lineage
from headway.jobs.submission.node_capacity import largest_node
from headway.schemas.submission.notebooks import NotebookIn
from tests.support.clusters import builders


def test_notebook_secret_and_path_appear_only_in_the_environment() -> None:
    prepared, folder = notebook_job.prepare_notebook(
        NotebookIn(gpus=2), builders.cluster(), largest_node(builders.cluster()), "ann", "ab" * 8, "s3cret"
    )
    request = prepared.request
    assert request.env == {notebook_job.SECRET_VARIABLE: "s3cret", notebook_job.BASE_VARIABLE: "/n/abababababababab/"}
    words = " ".join([*request.args, *request.script_args, request.script or "", folder])
    assert "s3cret" not in words
    assert "ab" * 8 not in words
    assert set(lineage.stored_request(prepared)["env"].values()) == {credential_redaction.MASK}
    assert "--gpus-per-node=2" in request.args
    assert request.script_args[:2] == [folder, "3600"]
    assert prepared.stage is not None
    assert list(prepared.stage.files) == request.script_args[2:]  # the program that makes kernels
    assert folder.startswith("/scratch/ann/")
