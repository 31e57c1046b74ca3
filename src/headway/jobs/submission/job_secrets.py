"""Secrets that a job asks for (`--secret`), an option of sbatch that Headway's plugin has (node/image/spank/private_tmp.c).
Pure."""

from __future__ import annotations

from headway.domain.slurm.sbatch_options import parse_options, script_options
from headway.schemas.submission.submit_request import SubmitIn

FLAG = "--secret"


def secret_flag(names: list[str]) -> str:
    """Returns the option of sbatch that asks for these secrets."""
    return f"{FLAG}={','.join(names)}"


def with_secrets(request: SubmitIn) -> SubmitIn:
    """Returns the request with the option of sbatch instead of the field `secrets`."""
    if not request.secrets:
        return request
    return request.model_copy(update={"args": [secret_flag(request.secrets), *request.args], "secrets": []})


def requested_secrets(request: SubmitIn) -> list[str]:
    """Returns the names of all secrets that the request asks for: its own, those of its flags and of its #SBATCH lines."""
    options = [*parse_options(request.args), *script_options(request.script or "")]
    words = [word for option in options if option.name == "secret" for word in option.value.split(",")]
    return list(dict.fromkeys(word for word in [*request.secrets, *words] if word))
