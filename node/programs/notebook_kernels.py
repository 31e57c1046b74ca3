#!/usr/bin/env python3
"""Makes a Jupyter kernel for the latest version of each software environment. Runs as the user, at the start of a notebook.

  notebook_kernels.py FOLDER     writes FOLDER/jupyter/kernels/NAME/kernel.json, for JUPYTER_PATH=FOLDER/jupyter

An environment need not contain ipykernel: it has the same Python as the machine, so its kernel is the machine's ipykernel. Only
that package and what it needs is added behind the environment's own packages, so that no other package of the machine is
found."""

import json
import os
import shutil
import sys

ENVIRONMENTS = "/environments"
SYSTEM = "/usr/lib/python3/dist-packages"
# ipykernel and what it imports.
NEEDED = (
    "ipykernel", "ipykernel_launcher", "IPython", "asttokens", "comm", "dateutil", "debugpy", "decorator", "executing", "jedi",
    "jupyter_client", "jupyter_core", "matplotlib_inline", "nest_asyncio", "packaging", "parso", "pexpect", "platformdirs",
    "prompt_toolkit", "psutil", "ptyprocess", "pure_eval", "pygments", "six", "stack_data", "tornado", "traitlets", "wcwidth",
    "zmq",
)  # fmt: skip
START = """\
import sys

sys.path[0] = ""
sys.path.append({libraries!r})
from ipykernel.kernelapp import launch_new_instance

launch_new_instance()
"""


def main():
    folder = sys.argv[1]
    jupyter, libraries = os.path.join(folder, "jupyter"), os.path.join(folder, "kernel-libraries")
    for old in (jupyter, libraries):
        shutil.rmtree(old, ignore_errors=True)
        os.makedirs(old)
    for name in NEEDED:
        for found in (os.path.join(SYSTEM, name), os.path.join(SYSTEM, f"{name}.py")):
            if os.path.exists(found):
                os.symlink(found, os.path.join(libraries, os.path.basename(found)))
    start = os.path.join(folder, "start-kernel.py")
    with open(start, "w") as file:
        file.write(START.format(libraries=libraries))
    for name, version in latest_versions(ENVIRONMENTS):
        place = os.path.join(jupyter, "kernels", name)
        os.makedirs(place)
        with open(os.path.join(place, "kernel.json"), "w") as file:
            json.dump(kernel(f"{ENVIRONMENTS}/{name}/{version}", f"{name}@{version}", start), file)
    return 0


def latest_versions(root):
    """Returns (name, number) of the latest version of each environment."""
    found = []
    try:
        names = sorted(name for name in os.listdir(root) if not name.startswith("."))
    except OSError:
        return []
    for name in names:
        numbers = [int(number) for number in os.listdir(os.path.join(root, name)) if number.isdigit()]
        if numbers:
            found.append((name, max(numbers)))
    return found


def kernel(place, label, start):
    """Returns the kernel's specification."""
    return {
        "argv": [f"{place}/bin/python", start, "-f", "{connection_file}"],
        "display_name": label,
        "language": "python",
        "metadata": {"debugger": False},
        "env": {
            "PATH": f"{place}/bin:{os.environ.get('PATH', '')}",
            "VIRTUAL_ENV": place,
            "PYTHONNOUSERSITE": "1",
            "HEADWAY_ENVIRONMENT": label,
        },
    }


if __name__ == "__main__":
    sys.exit(main())
