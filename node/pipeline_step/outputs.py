"""Collects the declared outputs of a step after its command: files, metrics and dataset versions."""

import hashlib
import json
import os
import re

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
    """Returns the sha256 of a file, or of a folder's names, modes and contents. Links count by the content that they lead to."""
    path = os.path.realpath(path)
    if in_dataset(path):
        return hashlib.sha256(os.fsencode(path)).hexdigest()
    if not os.path.isdir(path):
        return _content_digest(path)
    lines = []
    for name, place, link in tree_entries(path):
        if link:
            line = [name, "link", link]
        elif os.path.isdir(place):
            line = [name, "folder", ""]
        else:
            line = [name, "run" if os.stat(place).st_mode & 0o100 else "file", _content_digest(place)]
        lines.append(f"{json.dumps(line)}\n")
    return hashlib.sha256(
        "".join(sorted(lines)).encode()
    ).hexdigest()  # a copy may have another order: links are followed


def in_dataset(path):
    """Returns whether the path is in a dataset version. Its content never changes, so its path stands for it."""
    return path.startswith(f"{DATASETS}/")


def tree_entries(folder, prefix="", above=()):
    """Yields (name, path, link) of each file, link and empty folder in a folder. `link` is the text of a link that a
    copy of the folder keeps: a relative one to a path in the folder, one into a dataset, and one to nothing. Other links are
    followed, so `path` may be outside the folder. `above`: folders whose links are being followed."""
    folder = os.path.realpath(folder)
    for parent, folders, files in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        if not folders and not files and (parent != folder or prefix):
            yield os.path.normpath(os.path.join(prefix, os.path.relpath(parent, folder))), parent, ""
        for file in [*files, *linked]:
            path = os.path.join(parent, file)
            name = os.path.normpath(os.path.join(prefix, os.path.relpath(path, folder)))
            text = os.readlink(path) if os.path.islink(path) else ""
            target = os.path.realpath(path)
            inside = target.startswith(f"{folder}/") and not os.path.isabs(text)
            if not text:
                yield name, path, ""
            elif in_dataset(target):
                yield name, path, target
            elif inside or not os.path.exists(target) or any(_contains(target, one) for one in (parent, *above)):
                yield name, path, text
            elif os.path.isdir(target):
                yield from tree_entries(target, name, (*above, parent))
            else:
                yield name, target, ""


def _contains(folder, path):
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def tree_bytes(path):
    """Returns the size of a file, or of all files in a folder."""
    if not os.path.isdir(path):
        return os.stat(path).st_size
    return sum(os.stat(place).st_size for _, place, link in tree_entries(path) if not link and not os.path.isdir(place))


def _content_digest(path):
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
    except (ValueError, OverflowError):
        raise StepFault(f"output {name}: {str(value)[:60]!r} is not a number, or too large") from None


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
