"""Commands are read as the shell reads them, as far as lint needs it."""

from __future__ import annotations

import pytest

from headway.lint.batch_text import BatchText, launched_program
from tests.support.batch_scripts import script


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        ("a | b && c; d & e", ["a", "b", "c", "d", "e"]),
        ("a > log 2>&1", ["a"]),
        ("a &> log", ["a"]),
        ("echo 'b; c' \"d & e\"", ["echo"]),
        ("if [ -e x ]; then a; fi", ["[", "a"]),
        ("X=$(scontrol show hostnames $Y | head -n1)", ["", "scontrol", "head"]),
        ("cat <<< word", ["cat"]),
        ("a # b; c", ["a"]),
        ("for x in a b; do c $x; done", ["c"]),
        ("f() { a; }; f", ["a", "f"]),
        ("case $1 in x) a;; *) b;; esac", ["a", "b"]),
        ("A=(1 2 $(b | c) 3); d", ["", "b", "c", "d"]),
        ("declare -a A=(x y)", ["declare"]),
    ],
)
def test_simple_commands(line: str, programs: list[str]) -> None:
    assert [command.program for command in BatchText(script(line)).commands] == programs


def test_lines_of_an_array_are_no_commands() -> None:
    text = BatchText(script("ARGS=(", "  --lr 1", "  # it's a comment", "  x", ")", "a"))
    assert [command.program for command in text.commands] == ["", "a"]


@pytest.mark.parametrize(
    ("interpreter", "is_shell"),
    [
        ("#!/bin/bash", True), ("#!/bin/bash -l", True), ("#! /bin/sh", True), ("#!/usr/bin/env bash", True),
        ("#!/usr/bin/env -S zsh -e", True), ("#SBATCH -N1", True), ("#!/usr/bin/env python3", False),
        ("#!/bin/tcsh", False), ("#!/usr/bin/perl -w", False), ("#!/bin/csh -f", False),
    ],
)  # fmt: skip
def test_only_a_shells_commands_are_read(interpreter: str, is_shell: bool) -> None:
    text = BatchText(f"{interpreter}\nsrun hostname\n")
    assert (text.is_shell, len(text.commands)) == (is_shell, is_shell)


def test_comments_and_the_end_of_a_command() -> None:
    text = BatchText(script("a 'x", "#SBATCH 1", "' \\", "#SBATCH 2", "#SBATCH 3", "cat <<\\E", "#SBATCH 4", "E"))
    assert text.comments == {7}
    assert text.end_of(3) == 6


def test_here_documents_and_continued_lines() -> None:
    text = BatchText(
        script("cat > a <<'END'", "srun x", "END", "srun \\", "  b", "python - <<-E", "\tsrun c", "\tE", "d")
    )
    assert [(command.line, command.program) for command in text.commands] == [
        (3, "cat"),
        (6, "srun"),
        (8, "python"),
        (11, "d"),
    ]
    assert text.heredocs == [(3, 5), (8, 10)]


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("srun -N2 --ntasks 4 torchrun a.py", "torchrun"),
        ("python3 -u -m torch.distributed.run a.py", "torchrun"),
        ("srun --mpi=pmix numactl --localalloc env A=1 /opt/x/python a.py", "python"),
        ("mpirun -np 4 --bind-to none ./solver", "solver"),
        ("timeout -k 5 60 srun -l deepspeed a.py", "deepspeed"),
        ("srun", ""),
    ],
)
def test_program_that_a_launcher_starts(line: str, program: str) -> None:
    assert launched_program(BatchText(script(line)).commands[0]) == program


def test_variables_of_a_command() -> None:
    first, second = BatchText(script("A=1 B='2 3' run x", "export C=$D E=5")).commands
    assert first.assigned == {"A": "1", "B": "2 3"}
    assert second.assigned == {"C": "$D", "E": "5"}
