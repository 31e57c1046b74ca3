"""Collects the declared outputs of a step after its command: files, metrics and dataset versions."""

import hashlib
import json
import os
import re
import stat

DATASETS = "/datasets"
_VERSION = re.compile(r"^[1-9][0-9]{0,8}$")
_BLOCK = 1 << 20
_MOST_BYTES = 1 << 20  # of the file of written values


class StepFault(Exception):
    """A step cannot go on; its job fails with this message."""


def collect(declared, folder, written_path, metrics_file, with_digest):
    """Returns the outputs by name: {"kind", "value"} and, of files, "path" (in the folder), "bytes" and "sha256" (if
    `with_digest`). `declared`: name -> {"file": path}, {"metric": name} or {"dataset": name}. Raises StepFault for one that is
    missing."""
    written = written_values(written_path)
    found = {}
    for name, one in declared.items():
        if "file" in one:
            found[name] = _file(name, one["file"], folder, with_digest)
        elif "metric" in one:
            found[name] = _metric(name, one["metric"], written, metrics_file)
        else:
            found[name] = _dataset(name, one["dataset"], written)
    return found


def written_values(path):
    """Returns the values that the command wrote to $HEADWAY_OUTPUTS as lines NAME=VALUE; the last line of a name counts."""
    try:
        with open(path, errors="replace") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except FileNotFoundError:
        return {}
    return {name.strip(): value.strip() for name, equals, value in (line.partition("=") for line in lines) if equals}


def last_metric(path, metric):
    """Returns the last value of a metric that a job reported with headway_train (train/headway_train/metrics_file.py); None if
    it reported none."""
    names, found = [], None
    try:
        with open(path, errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:  # the process was killed while it wrote
                    continue
                if isinstance(entry, dict) and isinstance(entry.get("names"), list):
                    names = entry["names"]
                elif isinstance(entry, list) and metric in names and len(entry) > 2 + names.index(metric):
                    value = entry[2 + names.index(metric)]
                    found = found if value is None else value
    except FileNotFoundError:
        return None
    return found


def tree_digest(path):
    """Returns the sha256 of a file, or of a folder's names, modes and contents."""
    if os.path.isdir(path):
        digest = hashlib.sha256()
        for parent, folders, files in os.walk(path):
            folders.sort()
            for name in sorted([*files, *(name for name in folders if os.path.islink(os.path.join(parent, name)))]):
                file = os.path.join(parent, name)
                line = [os.path.relpath(file, path), _mode(file), _content_digest(file)]
                digest.update(f"{json.dumps(line)}\n".encode())
        return digest.hexdigest()
    return _content_digest(path)


def tree_bytes(path):
    """Returns the size of a file, or of all files in a folder."""
    if not os.path.isdir(path):
        return os.stat(path).st_size
    return sum(os.lstat(os.path.join(parent, name)).st_size for parent, _, files in os.walk(path) for name in files)


def _mode(path):
    mode = os.lstat(path).st_mode
    return "link" if stat.S_ISLNK(mode) else "run" if mode & 0o100 else "file"


def _content_digest(path):
    if os.path.islink(path):
        return os.readlink(path)
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _file(name, path, folder, with_digest):
    whole = os.path.join(folder, path)
    if not os.path.exists(whole):
        raise StepFault(f"output {name}: the command made no {path} in {folder}")
    found = {"kind": "file", "value": whole, "path": path, "bytes": tree_bytes(whole)}
    return {**found, "sha256": tree_digest(whole)} if with_digest else found


def _metric(name, metric, written, metrics_file):
    value = written[name] if name in written else last_metric(metrics_file, metric)
    try:
        return {"kind": "metric", "value": repr(float(value))}
    except TypeError:
        raise StepFault(
            f"output {name}: the command reported no {metric}; call headway_train.report({metric}=...), "
            f'or write a line {name}=VALUE to "$HEADWAY_OUTPUTS"'
        ) from None
    except ValueError:
        raise StepFault(f"output {name}: {value[:60]!r} is not a number") from None


def _dataset(name, dataset, written):
    folder = os.path.join(DATASETS, dataset)
    number = written.get(name, "").removeprefix(f"{dataset}@")
    if not number:
        versions = [int(entry) for entry in _names(folder) if _VERSION.match(entry)]
        if not versions:
            raise StepFault(f"output {name}: this machine has no version of dataset {dataset} in {folder}")
        number = str(max(versions))
    if not _VERSION.match(number) or not os.path.isdir(os.path.join(folder, number)):
        raise StepFault(f"output {name}: dataset {dataset} has no version {number[:60]!r} in {folder}")
    return {"kind": "dataset", "value": os.path.join(folder, number), "version": f"{dataset}@{number}"}


def _names(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []
