"""Recorded results of steps: one JSON file for each step, in the pipeline's folder.

    {"job": 12, "state": "done", "why": "", "source": 0, "at": 1700000000.5, "outputs": {"model": {"kind": "file", ...}}}

`state` is done, cached or skipped; a step that failed has no result. `source` is the job that made the outputs of a cached
step."""

import contextlib
import json
import os

FOLDER = ".headway/steps"
MOST_BYTES = 256 * 1024


class Results:
    """The results in the folder of a pipeline."""

    def __init__(self, pipeline_folder):
        self.folder = os.path.join(pipeline_folder, FOLDER)

    def path(self, name, ending="json"):
        """Returns the path of a file of this step."""
        return os.path.join(self.folder, f"{name}.{ending}")

    def read(self, name):
        """Returns the result of a step; None if it has none."""
        return read_json(self.path(name))

    def refresh(self):
        """Changes the folder, so that an NFS client asks its server again for files that it did not find."""
        probe = os.path.join(self.folder, f".probe.{os.uname().nodename}.{os.getpid()}")
        os.makedirs(self.folder, exist_ok=True)
        open(probe, "w").close()
        os.remove(probe)

    def write(self, name, result):
        """Records the result of a step."""
        write_json(self.path(name), result)

    def forget(self, name):
        """Deletes the result of a step."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path(name))


def read_json(path):
    """Returns the JSON object in a file; None if there is none, or something else."""
    try:
        with open(path) as file:
            found = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path, value):
    """Writes a file that is complete or absent at any time."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.{os.uname().nodename}.{os.getpid()}"
    with open(part, "w") as file:
        json.dump(value, file)
    os.replace(part, path)
