#!/usr/bin/env bash
# Writes requirements/constraints.txt: every version pinned, with the hashes of all its files, for Python 3.11 and
# later on any Linux; requirements/rest-client.txt, the generator of a test, which wants older libraries than
# Headway. Versions that are there stay; UPGRADE=1 takes the newest ones.
set -euo pipefail
cd "$(dirname "$0")/.."
uv_version=0.13.8
place=.cache/lock
[[ -x $place/bin/uv ]] || python3 -m venv "$place"
"$place/bin/pip" install --quiet "uv==$uv_version"
pin() {  # pin OUTPUT INPUTS...
  local lock=$1
  shift
  "$place/bin/uv" pip compile "$@" \
    --universal --python-version 3.11 --generate-hashes ${UPGRADE:+--upgrade} \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-config --system-certs --quiet \
    --output-file "$lock" >/dev/null
  # Where a package was downloaded from is the business of the machine that installs it.
  if grep -nE '://|--(extra-)?index|--find-links| @ ' "$lock"; then
    echo "lock: $lock names an address (above)" >&2
    exit 1
  fi
  echo "lock: $(grep -c '==' "$lock") packages, $(grep -c 'sha256:' "$lock") hashes in $lock"
}

pin requirements/constraints.txt pyproject.toml requirements/build.in --group dev
pin requirements/rest-client.txt requirements/rest-client.in
pin requirements/mlflow.txt requirements/mlflow.in
