"""The options of `headway run`, made from the fields of RunIn and ContainerIn that carry a JobFlag."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer
from pydantic import BaseModel

from headway.cli.options.env_option import parse_env_options
from headway.schemas.submission.job_flag import job_flags
from headway.schemas.submission.run_request import ContainerIn, RunIn

CONTAINER = "container_"  # before a container field's name, in the name of its parameter
F = TypeVar("F", bound=Callable[..., Any])


def with_job_options(command: F, model: type[BaseModel] | None = None) -> F:
    """Decorates a command: gives it an option for each field of RunIn or of another `model`, before its own options. It reads
    them by `run_fields`."""
    signature = inspect.signature(command, eval_str=True)
    own = [
        parameter for parameter in signature.parameters.values() if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    before = [parameter for parameter in own if parameter.name in ("ctx", "cluster")]
    after = [parameter for parameter in own if parameter not in before]
    ordered = [*before, *_parameters(model or RunIn, ""), *_parameters(ContainerIn, CONTAINER), *after]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in ordered]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def run_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns RunIn's fields as given on the command line; omitted options leave the fields' defaults.

    Raises BadParameter for a variable that is not set here, and for container options without an image."""
    given = {name: value for name, value in options.items() if value not in (None, "", [], ())}
    fields = {name: given[name] for name in job_flags(RunIn) if name in given}
    container = {name: given[CONTAINER + name] for name in job_flags(ContainerIn) if CONTAINER + name in given}
    if container and "image" not in container:
        raise typer.BadParameter("a container option needs an image: --container-image docker://...")
    if "mounts" in container:
        container["mounts"] = [mount for word in container["mounts"] for mount in word.split(",") if mount]
    if "env" in fields:
        fields["env"] = parse_env_options(fields["env"])
    return {**fields, "container": container or None}


def _parameters(model: type[BaseModel], prefix: str) -> Iterator[inspect.Parameter]:
    for name, (field, flag) in job_flags(model).items():
        kind, default = _option_type(field.annotation)
        if kind is int:
            default = field.get_default()
        option = typer.Option(
            *flag.options, metavar=flag.metavar or None, help=field.description, show_default=bool(default)
        )
        yield inspect.Parameter(
            prefix + name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
        )


def _option_type(annotation: Any) -> tuple[Any, Any]:
    """Returns the type and the default of the option for a field: texts are checked by the request, not by the option."""
    if annotation in (bool, bool | None):
        return annotation, False if annotation is bool else None
    if annotation is int:
        return int, 0
    if get_origin(annotation) in (list, dict):
        return list[str] | None, None
    assert annotation is str or type(None) in get_args(annotation), f"no option is known for {annotation}"
    return str, ""
