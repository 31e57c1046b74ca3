"""Folders of the checkout that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NODE = ROOT / "node"
EXAMPLES = ROOT / "examples"
RECORDINGS = ROOT / "tests" / "recorded_slurm"  # answers of real Slurm, one folder per version
