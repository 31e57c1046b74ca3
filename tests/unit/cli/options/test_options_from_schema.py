"""Each field of a run request is also a command-line option, a client keyword and, where shared, a field of pipeline
steps and the submit page."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from pydantic import Field

from headway.cli.command_group import load_command
from headway.cli.options import options_from_schema
from headway.cli.registry import ENTRIES
from headway.jobs.pipelines.pipeline_file import STEP_ONLY, PipelineStep
from headway.schemas.submission.job_flag import JobFlag, job_flags
from headway.schemas.submission.run_request import ContainerIn, JobFields, RunIn, RunOptions
from headway.web.views.submit_page.submit_form import SubmitForm, request

NOT_TYPED = {"argv", "bundle", "git"}  # what the command and the client fill in themselves


def test_every_run_field_is_a_cli_option_with_default_and_help() -> None:
    params = {parameter.name: parameter for parameter in load_command(ENTRIES["run"]).params}
    own = {"cluster", "folder", "no_files", "estimate", "output"}
    container = {f"container_{name}" for name in ContainerIn.model_fields}
    assert set(params) - own == (set(RunIn.model_fields) - NOT_TYPED - {"container"}) | container
    for name, (field, flag) in job_flags(RunIn).items():
        assert params[name].help == field.description
        assert flag.options[-1] in params[name].opts
        assert (params[name].default or None) == (field.get_default(call_default_factory=True) or None)


def test_every_run_field_is_a_keyword_of_the_client() -> None:
    assert set(RunOptions.__annotations__) == set(RunIn.model_fields) - NOT_TYPED - {"dry_run"}


def test_every_common_job_field_is_a_pipeline_step_field() -> None:
    assert set(PipelineStep.model_fields) - STEP_ONLY == set(JobFields.model_fields)
    assert set(JobFields.model_fields) < set(RunIn.model_fields)


def test_every_field_of_the_submit_page_reaches_the_request() -> None:
    draft = SubmitForm(
        how="command", command="python x.py", launcher="srun", nodes="2", gpus="3", tasks="4", time="5:00",
        partition="train", account="vision", job_name="first", image="docker://x",
    )  # fmt: skip
    sent, faults = request(draft)
    assert not faults
    assert sent is not None
    assert sent.run == RunIn(
        argv=["python", "x.py"], launcher="srun", nodes=2, gpus=3, tasks=4, time="5:00", partition="train",
        team="vision", name="first", container=ContainerIn(image="docker://x"),
    )  # fmt: skip
    forms = {flag.form for model in (RunIn, ContainerIn) for _, flag in job_flags(model).values() if flag.form}
    assert forms <= set(draft.shown)


def test_new_run_field_becomes_a_cli_option_without_further_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class LaterRunIn(RunIn):
        nice: Annotated[int, JobFlag(("--nice",), "NUMBER")] = Field(default=0, description="Lower the priority.")

    monkeypatch.setattr(options_from_schema, "RunIn", LaterRunIn)
    found: dict[str, Any] = {}

    @options_from_schema.with_job_options
    def command(**options: Any) -> None:
        found.update(options_from_schema.run_fields(options))

    app = typer.Typer()
    app.command()(command)
    typer.main.get_command(app).main(["--nice", "5", "-N", "2"], standalone_mode=False)
    assert found == {"nice": 5, "nodes": 2, "gpus": 0, "tasks": 0, "container": None} | {
        name: value for name, value in found.items() if value is False
    }
