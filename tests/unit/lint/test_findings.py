"""Corrections keep what they do not change, and a second run finds nothing to correct."""

from __future__ import annotations

import subprocess

import hypothesis.strategies as st
from hypothesis import given, settings

from headway.lint.findings import Edit, Finding, apply_edits, unified_diff, worst_level
from headway.lint.rules import lint_script
from tests.support.batch_scripts import script

PIECES = st.sampled_from(
    ["#!/bin/bash", "#SBATCH -N 2", " #SBATCH --time=5", "#SBATCH --output=$USER.log", "#SBATCH --signal=B:USR1@60",
     "#SBATCH --requeue", "#SBATCH --gres=gpu:2 --gpus=2", "#SBATCH --array=1-3", "cd /x", "trap save USR1",
     "srun torchrun \\", "  --nproc_per_node=1 a.py", "python a.py &", "cat <<EOF", "EOF", "echo 'open", "it\"s",
     "export MASTER_PORT=29500", "#PBS -l x", "cd $PBS_O_WORKDIR", "a \\\r", "conda activate x", "echo done", "", "$(", "| & ;"]
)  # fmt: skip


def row(line: int, *edits: Edit) -> Finding:
    return Finding("r", "note", line, "m", "w", edits)


def test_edits_of_several_findings_keep_line_numbers() -> None:
    rows = [row(1, Edit(2, 1, ("new",))), row(2, Edit(2, 2)), row(4, Edit(4, 4, ("D",)))]
    text, applied = apply_edits("a\nb\nc\nd\n", rows)
    assert text == "a\nnew\nc\nD\n"
    assert len(applied) == 3


def test_insertions_before_a_line_that_changes_keep_their_order() -> None:
    rows = [row(1, Edit(2, 1, ("one",))), row(2, Edit(2, 2, ("B",))), row(3, Edit(2, 1, ("two",)))]
    assert apply_edits("a\nb\nc\n", rows)[0] == "a\none\ntwo\nB\nc\n"


def test_second_change_of_a_line_waits_for_the_next_run() -> None:
    text, applied = apply_edits("a\n", [row(1, Edit(1, 1, ("b",))), row(1, Edit(1, 1, ("c",)))])
    assert (text, len(applied)) == ("b\n", 1)


def test_diff_and_level() -> None:
    assert unified_diff("a", "x\n", "x\n") == ""
    assert "-x\n+y\n" in unified_diff("a.sbatch", "x\n", "y\n")
    assert worst_level([]) is None
    assert worst_level(lint_script("hostname\n")) == "error"


@given(st.lists(PIECES, max_size=14).map("\n".join))
def test_any_script_is_read_and_corrections_come_to_an_end(text: str) -> None:
    for _ in range(12):
        text, applied = apply_edits(text, lint_script(text))
        if not applied:
            break
    else:
        raise AssertionError(text)


# Complete commands, so that a script of any of them is valid.
BLOCKS = st.sampled_from(
    ["if true; then\n  export NCCL_IB_DISABLE=1\nfi", "for i in 1 2; do\nexport CUDA_VISIBLE_DEVICES=0\ndone",
     "f() {\nconda activate x\n}", "case $1 in\na) srun python a.py | tee log ;;\nesac", "python a.py \\\n  --x 'a\nb' &",
     "cat > x <<EOF\n#SBATCH -N 1\nEOF", "torchrun \\\n  --master_port 29500 \\\n  a.py", "A=(\n  1\n  2\n)", "echo done",
     "srun python a.py 2>&1 | tee log", "trap save USR1", "export NCCL_P2P_DISABLE=1 # why", "cd $PBS_O_WORKDIR",
     "f && {\nNCCL_SHM_DISABLE=1\n}", "(\nexport NCCL_IB_DISABLE=1\n)", "bash -c 'MASTER_PORT=29500 srun x'", "#SBATCH -t 5",
     "echo '\n#SBATCH -t 6\n'", "exit 0", "export NCCL_DEBUG='INFO'", "torchrun --nproc-per-node=$SLURM_GPUS_PER_NODE a.py"]
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(BLOCKS, max_size=5))
def test_corrected_script_is_still_valid(blocks: list[str]) -> None:
    heads = ("#SBATCH --nodes=2 --gres=gpu:4", "#SBATCH --signal=B:USR1@60", "#SBATCH --requeue --output=$USER.log")
    text = "\n".join(["#!/bin/bash", *heads, *blocks, ""])
    while (better := apply_edits(text, lint_script(text))[0]) != text:
        text = better
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr + text


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    lint_script(text)


def test_long_script_is_read_quickly_enough_to_type_beside() -> None:
    lines = ['python a.py > out 2>&1; echo "$(date)" | tee x'] * 3000
    assert lint_script(script(*lines)) is not None
