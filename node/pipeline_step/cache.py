"""Finds the outputs of an earlier run of a step with the same content: command, settings, input files and outputs of the steps
that it needs. Files stay in the folder of the run that made them; a record names them. A hit copies them and checks the digest
of the copy."""

import hashlib
import json
import os
import shutil

from pipeline_step.outputs import StepFault, in_dataset, tree_digest, tree_entries
from pipeline_step.results import read_json, write_json


class Cache:
    """The records of a user's cached steps, one file for each content."""

    def __init__(self, folder):
        self._folder = folder

    def find(self, key, work):
        """Returns {"job", "outputs"} with the files copied to folder `work`; None if there is no record, or its files or dataset
        versions are gone or have changed."""
        record = read_json(os.path.join(self._folder, f"{key}.json"))
        if record is None:
            return None
        try:
            outputs = record["outputs"]
            if not all(os.path.isdir(one["value"]) for one in outputs.values() if one["kind"] == "dataset"):
                return None
            for one in (one for one in outputs.values() if one["kind"] == "file"):
                goal = os.path.join(work, one["path"])
                if not _copy(one["value"], goal, one["sha256"]):
                    return None
                one["value"] = goal
            return {"job": record["job"], "outputs": outputs}
        except (OSError, KeyError, TypeError, AttributeError, shutil.Error):  # the earlier folder was deleted meanwhile
            return None

    def save(self, key, job, outputs):
        """Records the outputs that job `job` made."""
        write_json(os.path.join(self._folder, f"{key}.json"), {"job": job, "outputs": outputs})


def content_key(settings, argv, inputs, folder):
    """Returns the key of a step: the sha256 of its settings, command, and input files. Raises StepFault for an input that is
    missing."""
    files = {}
    for path in inputs:
        whole = os.path.join(folder, path)
        if not os.path.exists(whole):
            raise StepFault(f"inputs: {folder} has no {path}")
        files[path] = tree_digest(whole)
    return hashlib.sha256(json.dumps([settings, argv, files], sort_keys=True).encode()).hexdigest()


def _copy(source, goal, sha256):
    """Puts a copy in place of `goal`, if the copy has this digest. Returns whether it has."""
    source = os.path.realpath(source)
    if source == os.path.realpath(goal):
        return tree_digest(goal) == sha256
    os.makedirs(os.path.dirname(goal), exist_ok=True)
    part = f"{goal}.{os.uname().nodename}.{os.getpid()}"
    try:
        if in_dataset(source):
            os.symlink(source, part)
        elif os.path.isdir(source):
            _copy_folder(source, part)
        else:
            shutil.copy2(source, part)
        if tree_digest(part) != sha256:
            return False
        _remove(goal)
        os.rename(part, goal)
        return True
    finally:
        _remove(part)


def _remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def _copy_folder(source, goal):
    os.makedirs(goal)
    for name, path, link in tree_entries(source):
        to = os.path.join(goal, name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if link:
            os.symlink(link, to)
        elif os.path.isdir(path):
            os.makedirs(to, exist_ok=True)
        else:
            shutil.copy2(path, to)
