"""Lists the checkpoints of a job and the container images that its steps used; prints one JSON object. Runs on the login
node as the job's owner.

    list_job_files.py FOLDER-OF-CHECKPOINTS FILE-OF-IMAGES"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    checkpoints, used = [], []
    try:
        checkpoints = sorted(os.listdir(sys.argv[1]))
    except OSError:
        pass
    try:
        with open(sys.argv[2]) as file:
            used = [entry for entry in map(json.loads, file) if isinstance(entry, dict)]
    except (OSError, ValueError):
        pass
    print(json.dumps({"checkpoints": checkpoints, "used": used}))


if __name__ == "__main__":
    main()
