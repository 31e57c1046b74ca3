"""What is kept of a job that was submitted, without the values of secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from headway.domain.cluster import Cluster
from headway.domain.dataset import FOLDER, Version
from headway.jobs.run import Prepared

MASK = "********"
_SECRET = re.compile(
    r"secret|token|passw|passphrase|credential|api_?key|private_?key|access_?key|account_?key|auth|_key$|^key$",
    re.IGNORECASE,
)
_SETS = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]*)=([^\s;&|]+)")
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*)(=)(.+)", re.DOTALL)
_DATASET = re.compile(rf"(?<![\w.-]){FOLDER}/([a-z][a-z0-9_-]*)(?:/+([0-9]+)(?![^/\s\"':;,)]))?")
_VALUE_FLAG = re.compile(r"--(container-image|container-mounts)=(.*)", re.DOTALL)


def is_secret(name: str) -> bool:
    """Whether a variable's or option's name says that its value is one."""
    return bool(_SECRET.search(name.replace("-", "_")))


def masked(env: Mapping[str, str]) -> dict[str, str]:
    return {name: MASK if is_secret(name) else value for name, value in env.items()}


def masked_text(text: str) -> str:
    """`export HF_TOKEN=...` in a script, shown without its value."""
    return _SETS.sub(lambda m: f"{m[1]}={MASK}" if is_secret(m[1]) and not m[2].startswith(("$", '"$')) else m[0], text)


def masked_words(words: list[str]) -> list[str]:
    """`--hf-token=...` and `--hf-token ...`, shown without their values."""
    found: list[str] = []
    for word in words:
        option = _OPTION.fullmatch(word)
        if option and is_secret(option[1]):
            found.append(f"{option[1]}={MASK}")
        elif found and found[-1].startswith("-") and "=" not in found[-1] and is_secret(found[-1]):
            found.append(MASK)
        else:
            found.append(word)
    return found


def lost_secrets(env: Mapping[str, str]) -> list[str]:
    """Variables whose values were not kept."""
    return sorted(name for name, value in env.items() if value == MASK)


def kept_request(prepared: Prepared) -> dict[str, Any]:
    """The request as the store keeps it."""
    request = prepared.request
    return request.model_copy(update={"env": masked(request.env)}).model_dump(mode="json")


def used(prepared: Prepared, versions: Iterable[Version]) -> list[Version]:
    """Versions that the job names: by their path in its script, words, options, variables or folder. Whoever names a
    dataset without a number may read any of its versions."""
    request = prepared.request
    texts = [request.script or "", request.chdir, *request.script_args, *request.args, *request.env.values()]
    named = {(match[1], match[2] or "") for text in texts for match in _DATASET.finditer(text)}
    return [one for one in versions if (one.name, str(one.number)) in named or (one.name, "") in named]


def facts(prepared: Prepared, cluster: Cluster, versions: Iterable[Version] = ()) -> dict[str, Any]:
    """What is known when a job is submitted, and is not in the request. `versions`: of datasets, that it uses."""
    own = [one for one in cluster.storage.datasets if not one.versioned]
    return {
        "launcher": prepared.launcher,
        "container_image": _image(prepared),
        "checkpoints": prepared.checkpoints,
        "datasets": [
            *({"name": one.name, "mount": one.mount, "version": one.source} for one in own),
            *(
                {"name": one.name, "mount": one.path, "version": str(one.number), "sha256": one.digest}
                for one in versions
            ),
        ],
    }


def _image(prepared: Prepared) -> str:
    """The --container-image of the flags, the command or an #SBATCH line."""
    lines = (prepared.request.script or "").splitlines()
    directives = [word for line in lines if line.startswith("#SBATCH") for word in line.split()]
    for word in [*prepared.request.args, *prepared.request.script_args, *directives]:
        match = _VALUE_FLAG.fullmatch(word)
        if match and match[1] == "container-image":
            return match[2]
    return ""
