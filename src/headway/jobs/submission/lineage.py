"""The lineage record of a submitted job, without the values of secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from headway.domain.access.credential_redaction import mask_environment
from headway.domain.cluster import Cluster
from headway.domain.dataset import FOLDER, DatasetVersion
from headway.domain.environment import EnvironmentVersion
from headway.jobs.submission.prepare_job import PreparedJob
from headway.jobs.submission.requested_resources import requested_resources

_DATASET = re.compile(rf"(?<![\w.-]){FOLDER}/([a-z][a-z0-9_-]*)(?:/+([0-9]+)(?![^/\s\"':;,)]))?")
_FLAG = "--container-image="


def stored_request(prepared: PreparedJob) -> dict[str, Any]:
    """Returns the request as the store keeps it."""
    request = prepared.request
    return request.model_copy(update={"env": mask_environment(request.env)}).model_dump(mode="json")


def submitted_texts(prepared: PreparedJob) -> list[str]:
    """Returns the job's script, folder, words, options and variables."""
    request = prepared.request
    return [request.script or "", request.chdir, *request.script_args, *request.args, *request.env.values()]


def used_versions(prepared: PreparedJob, versions: Iterable[DatasetVersion]) -> list[DatasetVersion]:
    """Returns the versions whose path is in the job's script, words, options, variables or folder. A path without
    a number counts for all versions of the dataset."""
    texts = submitted_texts(prepared)
    named = {(match[1], match[2] or "") for text in texts for match in _DATASET.finditer(text)}
    return [
        version for version in versions if (version.name, str(version.number)) in named or (version.name, "") in named
    ]


def lineage_facts(
    prepared: PreparedJob,
    cluster: Cluster,
    versions: Iterable[DatasetVersion] = (),
    environments: Iterable[EnvironmentVersion] = (),
) -> dict[str, Any]:
    """Returns facts that are known when a job is submitted and are not in the request. `versions` are the dataset
    versions that it uses."""
    own = [dataset for dataset in cluster.storage.datasets if not dataset.versioned]
    return {
        "launcher": prepared.launcher,
        "container_image": _image(prepared),
        "checkpoints": prepared.checkpoints,
        "datasets": [
            *({"name": dataset.name, "mount": dataset.mount, "version": dataset.source} for dataset in own),
            *(
                {"name": version.name, "mount": version.path, "version": str(version.number), "sha256": version.digest}
                for version in versions
            ),
        ],
        "environments": [
            {"name": one.name, "version": str(one.number), "python": one.python, "sha256": one.digest}
            for one in environments
        ],
    }


def _image(prepared: PreparedJob) -> str:
    """Returns the --container-image of the flags and #SBATCH lines, or of the arguments of a `headway run` script."""
    wants = [want.options.get("container-image", "") for want in requested_resources(prepared.request)]
    given = (word.removeprefix(_FLAG) for word in prepared.request.script_args if word.startswith(_FLAG))
    return next(filter(None, wants), "") or next(given, "")
