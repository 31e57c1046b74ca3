"""`make gpu-proof`: checks on a machine with an NVIDIA GPU what Headway does with real GPUs, and writes docs/gpu-checks.md.

    python3 node/gpu_proof [--report FILE] [--seconds S] [--only NAME,...] [--packages FOLDER | --install] [--simulated LIBRARY]

It needs the NVIDIA driver and Python 3.10, nothing else. The trainings also need torch with CUDA, the one-node Slurm root
and Debian packages of Slurm. --packages installs them from *.deb files of a folder, without any network, and --install from the
machine's own sources; without the two it uses no network and changes nothing on the machine. What can't run is reported as "not
run", with the reason. Exit status: 0 when nothing failed.

--simulated runs the same steps against the stand-in for the CUDA driver (node/image/gpu), compiled as LIBRARY: it tests this
program, and the report says SIMULATED. With --simulated or --only, --report names the file: the page is only for all checks on
real GPUs."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/gpu-checks.md"
sys.path.insert(0, str(ROOT / "node"))

from gpu_proof.machine import describe_machine, open_proof  # noqa: E402
from gpu_proof.report import Report  # noqa: E402
from gpu_proof.steps import STEPS  # noqa: E402


def main() -> int:
    """Runs the steps, prints each result as it comes, writes the report, and returns the exit status."""
    parser = argparse.ArgumentParser("gpu_proof", description="Check what Headway does with this machine's GPUs.")
    parser.add_argument("--report", type=Path, help=f"file to write (default: {PAGE})")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long one figure is measured")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="names of steps")
    parser.add_argument("--simulated", default="", metavar="LIBRARY", help="stand-in for the CUDA driver")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--packages", metavar="FOLDER", help="install Slurm's *.deb files of this folder")
    source.add_argument("--install", dest="packages", action="store_const", const="", help="install Slurm with apt-get")
    options = parser.parse_args()
    unknown = [name for name in options.only if name not in STEPS]
    if unknown:
        parser.error(f"no step {', '.join(unknown)}; there are {', '.join(STEPS)}")
    if (options.only or options.simulated) and not options.report:
        parser.error(f"--only and --simulated need --report FILE: {PAGE} is for all checks on real GPUs")
    path = options.report or ROOT / PAGE
    try:
        proof = open_proof(options.simulated, options.seconds, options.packages)
    except OSError as error:
        sys.exit(f"gpu-proof: no NVIDIA driver answers on this machine ({error})\n  install it and run this again")
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that what the steps have started ends with this program
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    report = Report(describe_machine(proof), simulated=proof.config.simulated)
    for name in options.only or STEPS:
        for result in STEPS[name](proof):
            report.add(name, result)
    report.write(path)
    print(f"written: {path}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
