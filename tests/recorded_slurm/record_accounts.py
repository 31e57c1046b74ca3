"""Records what real Slurm says of the accounts of accounts.yaml, for the tests that read accounts and compare them.

    python -m tests.recorded_slurm.record_accounts debian13 debian12

It makes a local cluster of each node image, records, and removes the cluster.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from headway.catalog.node_images import IMAGES
from headway.slurm.accounting import sacctmgr_reader
from tests.cluster.lab import Lab

HERE = Path(__file__).parent
SPEC = HERE / "accounts.yaml"
BUSY = ("alice|vision", "carol|speech")


def record_accounts(lab: Lab, folder: Path) -> None:
    """Writes the answers of the cluster, with a running and a pending job."""
    commands = sacctmgr_reader.accounts_argv()
    for user, gpus in (("alice", 8), ("carol", 8)):
        lab.sbatch(user, f"--gpus={gpus}", "--time=30", wrap="sleep 600")
    # slurmctld sends records to the database late and in parts.
    lab.wait(lambda: all(pair in lab.head(*commands["busy"]).out for pair in BUSY), "the jobs to be accounted")
    for name, argv in commands.items():
        (folder / f"accounts_{name}.txt").write_text(lab.head(*argv).out)


def main() -> None:
    for image in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as state:
            lab = Lab(Path(state) / "state", name="recorded", image=image)
            lab.cli("image", "build", image, timeout_s=1800)
            with lab.applied(f"{SPEC.read_text()}image: {image}\n"):
                record_accounts(lab, HERE / IMAGES[image].slurm.name)


if __name__ == "__main__":
    main()
