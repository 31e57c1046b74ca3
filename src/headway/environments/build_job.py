"""The job that builds a version of an environment: its script and its folder. Pure.

The job runs as the person who asked, in their account, so that the queue shows it and their rights limit it. It makes a
complete environment in a folder of theirs; `environment_file_store` publishes it."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import PurePosixPath

from headway.catalog.cuda_builds import torch_limits
from headway.domain.cluster import HEAD_PROXY, Cluster
from headway.domain.operation_kinds import EnvironmentParams
from headway.jobs.submission.job_folders import user_folders
from headway.jobs.submission.prepare_job import PreparedJob
from headway.jobs.submission.submit import JobFiles
from headway.render.system.package_sources import PROXY_PORT
from headway.schemas.submission.submit_request import SubmitIn

PYTHON = "/usr/bin/python3"  # of the node image: the same on every machine
_TIME = "4:00:00"
_MEMORY = "2G"
_CPUS = 4  # at most; they compile the modules
# Options of a requirements file that say where packages are. uv does not write them to the lock, because an address may
# contain a password.
_SCRIPT = """\
#!/bin/bash
# Builds a software environment. $1: uv, $2: folder, $3: what it is made from, $4: Python, $5: HTTP proxy, "" = none;
# then pairs: a branch of NVIDIA's driver, and what drivers before it require of a torch whose version is left open.
set -euo pipefail
uv=$1 from=$3 python=$4 proxy=$5
driver=$(cut -d . -f 1 /sys/module/nvidia/version 2>/dev/null || true)
cd "$2"
umask 022
export UV_CACHE_DIR=${UV_CACHE_DIR:-$(dirname "$(dirname "$2")")/uv-cache} UV_PYTHON_DOWNLOADS=never
export UV_CONCURRENT_INSTALLS=${SLURM_CPUS_PER_TASK:-1} UV_CONCURRENT_BUILDS=${SLURM_CPUS_PER_TASK:-1}
[ -z "$proxy" ] || export HTTP_PROXY=$proxy HTTPS_PROXY=$proxy
rm -rf venv lock.txt
options="^ *(-i|-f|--(index-url|extra-index-url|find-links|no-index|trusted-host))([= ]|$)"
limit=()
shift 5
while [ $# -gt 0 ]; do
    # A requirement of the user, or an index of theirs, says which torch it is to be.
    if [ "$from" = requirements.txt ] && [ "${driver:-$1}" -lt "$1" ] && [ ${#limit[@]} = 0 ] &&
        grep -qE "^ *torch *$" "$from" && ! grep -qE "$options" "$from"; then
        echo "$2" >limit.txt
        limit=(--constraints limit.txt)
        echo "--- the driver of this node is of branch $driver, so $2 is installed: newer builds need branch $1 ---"
    fi
    shift 2
done
# `uv pip compile` and `uv export` do not compare the Python of the nodes with the project's.
[ ! -d python ] || "$uv" lock --quiet --offline --project python --python "$python"
case $from in
uv.lock)
    "$uv" export --quiet --frozen --no-dev --no-emit-project --no-header --no-annotate --python "$python" \\
        --format requirements.txt --output-file lock.txt ;;
*)
    "$uv" pip compile --quiet --generate-hashes --no-header --no-annotate --python "$python" \\
        "${limit[@]}" --output-file lock.txt "$from" ;;
esac
echo "--- $(grep -c '^[A-Za-z0-9]' lock.txt || true) packages are chosen, they are now installed ---"
"$uv" venv --quiet --relocatable --no-project --python "$python" venv
where=()
if [ "$from" = requirements.txt ]; then
    grep -E "$options" "$from" >where.txt || true
    [ ! -s where.txt ] || where=(-r where.txt)
fi
"$uv" pip install --require-hashes --no-deps --compile-bytecode --python venv/bin/python "${where[@]}" -r lock.txt
"$uv" pip check --python venv/bin/python
echo "--- the environment is complete ---"
"""


@dataclass(frozen=True, slots=True)
class BuildFolders:
    """Folders of a build, on the shared storage, owned by the user."""

    stage: str  # deleted when the build has ended
    log: str


def build_folders(cluster: Cluster, user: str, operation: str) -> BuildFolders:
    """Returns the folders of the build that this operation makes."""
    there = f"{user_folders(cluster, user).root}/environments"
    return BuildFolders(f"{there}/{operation}", f"{there}/{operation}.log")


def proxy_url(cluster: Cluster) -> str:
    """Returns the HTTP proxy of builds, "" for none."""
    proxy = cluster.packages.proxy
    return f"http://{cluster.head}:{PROXY_PORT}" if proxy == HEAD_PROXY else proxy


def file_name(source: str) -> str:
    """Returns the name under which uv reads the text: everything but a project is a requirements file."""
    return source if source in ("pyproject.toml", "uv.lock") else "requirements.txt"


def required_python(pyproject: str) -> str:
    """Returns the `requires-python` of a project, "" if it has none. A text that is not TOML is for uv to refuse."""
    try:
        wanted = tomllib.loads(pyproject).get("project", {}).get("requires-python", "")
    except (tomllib.TOMLDecodeError, AttributeError):
        return ""
    return wanted if isinstance(wanted, str) else ""


def job_name(environment: str) -> str:
    """Returns the name of the job that builds an environment."""
    return f"environment-{environment}"


def prepare_build(params: EnvironmentParams, cluster: Cluster, user: str, operation: str, uv: str) -> PreparedJob:
    """Returns the job that builds the environment. `uv` is the path of the program on the machines."""
    place, source = build_folders(cluster, user, operation), file_name(params.source or "")
    args = [
        f"--job-name={job_name(params.name)}", "--nodes=1", "--ntasks=1", f"--mem={_MEMORY}",
        f"--cpus-per-task={min(_CPUS, cluster.largest_plan.cpus)}",
        f"--time={_TIME}", "--requeue", "--open-mode=append", f"--output={place.log}",
    ]  # fmt: skip
    args += [f"--partition={params.partition}"] if params.partition else []
    args += [f"--account={params.team}"] if params.team else []
    files = {f"{place.stage}/{source}": params.text or ""}
    if source == "uv.lock":
        files[f"{place.stage}/pyproject.toml"] = params.pyproject or ""
    if wanted := required_python(files.get(f"{place.stage}/pyproject.toml", "")):
        project = f'[project]\nname = "python"\nversion = "0"\nrequires-python = {json.dumps(wanted)}\n'
        files[f"{place.stage}/python/pyproject.toml"] = project
    limits = [word for branch, limit in torch_limits() for word in (str(branch), limit)]
    request = SubmitIn(
        args=args,
        script=_SCRIPT,
        script_name=job_name(params.name),
        script_args=[uv, place.stage, source, PYTHON, proxy_url(cluster), *limits],
        chdir=str(PurePosixPath(place.stage)),
    )
    stage = JobFiles(user_folders(cluster, user).root, "", place.stage, files)
    return PreparedJob(request, stage, launcher="environment")
