"""Removes what Headway made on this machine: `make clean`.

It removes machines and networks with this state folder's label, the node images, the state folder itself with its
homes, scratch and accounting, and what tests left in the temporary folders. The virtual environment stays. Clusters
other than the demo's may hold a user's work: if there is one, it stops and names it, unless --yes is given (YES=1). A
folder that contains anything that is not Headway's is never removed."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from podman import podman

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))  # works without the virtual environment: what follows needs only Python

from headway import paths  # noqa: E402
from headway.cli import ssh_config_files  # noqa: E402
from headway.errors import HeadwayError, Unreachable  # noqa: E402
from headway.paths import instance_label  # noqa: E402
from headway.providers.local.mounts import mounts_below  # noqa: E402
from headway.sdk import local_server  # noqa: E402

OURS = {"demo"}
# Names of what a server creates in its state folder, including drafts and the database's side files.
MADE = (
    "client.json", "headway.db*", "hosts", "images", "machines", "podman.*", "secrets.key", "server.*", "volumes",
    ".client.json.*", ".secrets.key.*", ".server.*",
)  # fmt: skip


def listed(*argv: str) -> list[dict[str, Any]]:
    """Returns the objects that a podman command lists."""
    found = json.loads(podman(*argv, "--format", "json") or "[]")
    return list(found or [])


def test_states() -> list[Path]:
    """Returns the state folders of killed tests: those that still have machines, networks or mounts, and no running
    server."""
    found: set[Path] = set()
    for base in {Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")}:
        for pattern in ("pytest-of-*/pytest-*/*/state", "headway-test-*"):
            found |= {path.resolve() for path in base.glob(pattern) if path.is_dir()}
    every = [("ps", "--all"), ("network", "ls")]
    label = "label=headway=1"
    items = [item for argv in every for item in listed(*argv, "--filter", label)]
    used = {(item.get("Labels") or item.get("labels") or {}).get("headway.instance", "") for item in items}
    return sorted(path for path in found if (instance_label(path) in used or mounts_below(path)) and not alive(path))


def alive(state: Path) -> bool:
    """Returns whether a server runs on the folder; then its tests are still running."""
    try:
        return local_server.running_server(state) is not None
    except Unreachable:  # another user's
        return False


def stop_server(state: Path) -> None:
    """Ends the state folder's server, so that it neither repairs nor writes what is being removed."""
    try:
        local_server.stop_server(state)
    except HeadwayError:  # it does not stop, or is another user's
        with suppress(HeadwayError, PermissionError):
            if server := local_server.running_server(state):
                os.kill(server.pid, signal.SIGKILL)


def clusters(state: Path) -> set[str]:
    """Returns the names of the clusters with machines or data in this state folder: containers on this host, and
    machines elsewhere, which only the server's records name."""
    label = f"label=headway.instance={instance_label(state)}"
    names = {item["Labels"].get("headway.cluster", "") for item in listed("ps", "--all", "--filter", label)}
    volumes = state / "volumes"
    if volumes.is_dir():
        names |= {path.name for path in volumes.iterdir()}
    names |= {path.stem for path in (state / "hosts").glob("*.json")}
    return names - {""}


def recorded(state: Path) -> set[str]:
    """Returns the names of the clusters in the server's database. Raises sqlite3.Error if it can't be read."""
    database = state / "headway.db"
    if not database.exists():
        return set()
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as db:
        return {str(name) for (name,) in db.execute("SELECT name FROM clusters")}


def foreign(state: Path) -> list[str]:
    """Returns the names in the folder that are not Headway's, because HEADWAY_STATE may name any folder."""
    names = [path.name for path in state.iterdir()] if state.is_dir() else []
    return sorted(name for name in names if not any(fnmatch(name, made) for made in MADE))


def forget_ssh(names: Iterable[str]) -> None:
    """Removes the clusters from the user's ssh config, as `headway down` does."""
    for name in names:
        ssh_config_files.remove_ssh_config(name)


def remove_machines(state: Path) -> tuple[int, int]:
    """Removes machines and networks by label, and returns (number of machines, number of networks)."""
    label = f"label=headway.instance={instance_label(state)}"
    machines = [item["Id"] for item in listed("ps", "--all", "--filter", label)]
    if machines:
        podman("rm", "--force", "--time", "0", *machines)
    networks = [item["name"] for item in listed("network", "ls", "--filter", label)]
    for name in networks:
        podman("network", "rm", "--force", name)
    return len(machines), len(networks)


def remove_folder(folder: Path) -> None:
    """Deletes a state folder. Exits if something in it is still mounted, because datasets are mounted into it."""
    folder = folder.resolve()
    for point in reversed(mounts_below(folder)):
        subprocess.run(["umount", "--lazy", "--no-canonicalize", point], capture_output=True, timeout=60, check=False)
    left = mounts_below(folder)
    if left:
        sys.exit(f"clean: still mounted, so nothing in it is deleted: {', '.join(left)}\n  umount it, then repeat")
    shutil.rmtree(folder, ignore_errors=False)


def remove_images() -> int:
    """Removes the images that no machine uses, and returns their number. Clusters of other state folders keep theirs.
    Base images are removed after the images that were made from them."""
    images = listed("images", "--filter", "label=headway=1")
    images.sort(key=lambda item: "headway.base" in (item.get("Labels") or {}) and "headway.image" not in item["Labels"])
    return sum(bool(podman("rmi", tag)) for item in images for tag in item.get("Names") or [item["Id"]])


def say(parts: Iterable[tuple[int, str]]) -> str:
    """Returns the counts as text."""
    return ", ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in parts if count) or "nothing"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Remove what Headway made on this machine.")
    parser.add_argument("--yes", action="store_true", default=os.environ.get("YES") == "1")
    options = parser.parse_args(argv)
    state = paths.state_dir()
    if others := foreign(state):
        print(f"clean: {state} also holds what is not Headway's: {', '.join(others[:5])}", file=sys.stderr)
        print(
            "  nothing was removed; move that elsewhere, or have HEADWAY_STATE name the right folder", file=sys.stderr
        )
        return 1
    known = clusters(state)
    try:
        known |= recorded(state)
    except sqlite3.Error as error:
        if not options.yes:
            print(f"clean: {state / 'headway.db'} can't be read, so its clusters are unknown: {error}", file=sys.stderr)
            print("  make clean YES=1 removes everything", file=sys.stderr)
            return 1
    if (kept := sorted(known - OURS)) and not options.yes:
        print(f"clean: {state} also holds {', '.join(kept)}, with homes and accounting", file=sys.stderr)
        print("  headway down NAME --delete-data removes one; make clean YES=1 removes everything", file=sys.stderr)
        return 1
    machines = networks = 0
    folders = [state, *test_states()]
    for folder in folders:
        if folder.exists():
            stop_server(folder)
        made = remove_machines(folder)
        machines, networks = machines + made[0], networks + made[1]
        if folder.exists():
            remove_folder(folder)
            print(f"removed {folder}")
    forget_ssh(known)
    images = remove_images()
    shutil.rmtree(ROOT / ".cache", ignore_errors=True)
    print(f"removed {say([(machines, 'machine'), (networks, 'network'), (images, 'node image')])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
