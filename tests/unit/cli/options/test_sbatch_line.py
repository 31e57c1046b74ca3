"""`headway submit` splits an sbatch command line into sbatch options, its own options, script and arguments."""

from __future__ import annotations

import pytest
import typer

from headway.cli.options import sbatch_line
from headway.domain.slurm import sbatch_options as flags


@pytest.mark.parametrize(
    ("words", "args", "script", "rest"),
    [
        ("x.sh", "", "x.sh", ""),
        ("x.sh a -N 2 --json", "", "x.sh", "a -N 2 --json"),
        ("-N 2 x.sh", "-N 2", "x.sh", ""),
        ("-N2 x.sh", "-N2", "x.sh", ""),
        ("-HN 2 x.sh a", "-HN 2", "x.sh", "a"),
        ("-HQ x.sh", "-HQ", "x.sh", ""),
        ("-k x.sh", "-k", "x.sh", ""),
        ("-s -O x.sh", "-s -O", "x.sh", ""),
        ("--nodes=2 x.sh", "--nodes=2", "x.sh", ""),
        ("--nodes 2 x.sh", "--nodes 2", "x.sh", ""),
        ("--gpus-per-node=8 -p train x.sh --epochs 3", "--gpus-per-node=8 -p train", "x.sh", "--epochs 3"),
        ("--exclusive x.sh", "--exclusive", "x.sh", ""),
        ("--exclusive=user x.sh", "--exclusive=user", "x.sh", ""),
        ("--nice x.sh", "--nice", "x.sh", ""),
        ("--requeue --hold x.sh", "--requeue --hold", "x.sh", ""),
        ("--dependency afterok:12 x.sh", "--dependency afterok:12", "x.sh", ""),
        ("--part train x.sh", "--part train", "x.sh", ""),  # clear, so as long as sbatch takes it
        ("--mem-per-g 1G x.sh", "--mem-per-g 1G", "x.sh", ""),
        (
            "--container-image a/b:1 --container-mount-home x.sh",
            "--container-image a/b:1 --container-mount-home",
            "x.sh",
            "",
        ),
        ("--of-a-plugin=1 x.sh", "--of-a-plugin=1", "x.sh", ""),
        ("--of-a-plugin x.sh", "--of-a-plugin", "x.sh", ""),
        ("-o out-%j.txt -e err x.sh", "-o out-%j.txt -e err", "x.sh", ""),
        ("--array=1-10%2 -- x.sh a", "--array=1-10%2", "x.sh", "a"),
        ("--test-only x.sh", "--test-only", "x.sh", ""),
        ("-N1 : -N2 -G8 x.sh :", "-N1 : -N2 -G8", "x.sh", ":"),
        ("", "", None, ""),
        ("-", "", "-", ""),
    ],
)
def test_sbatch_line_is_split_into_options_script_and_arguments(
    words: str, args: str, script: str | None, rest: str
) -> None:
    line = sbatch_line.parse_sbatch_line(words.split())
    assert (line.args, line.script, line.script_args) == (args.split(), script, rest.split())
    assert line.own == {}


@pytest.mark.parametrize(
    ("words", "own", "args"),
    [
        ("--json x.sh", {"json": "1"}, ""),
        ("--parsable -N 2 x.sh", {"parsable": "1"}, "-N 2"),
        ("--as alice x.sh", {"as": "alice"}, ""),
        ("--as=alice --json x.sh", {"as": "alice", "json": "1"}, ""),
        ("--chdir /scratch/a x.sh", {"chdir": "/scratch/a"}, ""),
        ("--chdir=/scratch/a x.sh", {"chdir": "/scratch/a"}, ""),
        ("-D /scratch/a x.sh", {"chdir": "/scratch/a"}, ""),
        ("-HD/scratch/a x.sh", {"chdir": "/scratch/a"}, "-H"),
        ("-W x.sh", {"wait": "1"}, ""),
        ("--wait x.sh", {"wait": "1"}, ""),
        ("-h", {"help": "1"}, ""),
        ("-N 2 --help", {"help": "1"}, "-N 2"),
    ],
)
def test_headway_options_are_taken_out_of_the_sbatch_line(words: str, own: dict[str, str], args: str) -> None:
    line = sbatch_line.parse_sbatch_line(words.split())
    assert (line.own, line.args) == (own, args.split())


def test_every_own_flag_is_parsed_and_its_help_fits_a_terminal() -> None:
    for flag in sbatch_line.OWN_FLAGS:
        words = [f"--{flag.name}", *(["x"] if flag.metavar else []), "job.sh"]
        line = sbatch_line.parse_sbatch_line(words)
        assert (line.args, line.script) == ([], "job.sh")
    lines = sbatch_line.own_flags_help().splitlines()
    assert max(map(len, lines)) <= 78
    assert [line.split()[0] for line in lines if line.startswith("--")] == [
        f"--{flag.name}" for flag in sbatch_line.OWN_FLAGS if flag.help
    ]


def test_wrap_excludes_a_script() -> None:
    line = sbatch_line.parse_sbatch_line(["-N", "2", "--wrap", "srun hostname; date"])
    assert line.wrap
    assert (line.args, line.script) == (["-N", "2", "--wrap", "srun hostname; date"], None)
    with pytest.raises(typer.BadParameter, match=r"the script x\.sh"):
        sbatch_line.parse_sbatch_line(["--wrap=hostname", "x.sh"])


@pytest.mark.parametrize("words", ["-N", "--nodes", "-HN", "--as", "-D", "--wrap"])
def test_option_without_its_value_is_refused(words: str) -> None:
    with pytest.raises(typer.BadParameter, match="needs a value"):
        sbatch_line.parse_sbatch_line([words])


def test_no_sbatch_flag_is_in_two_tables() -> None:
    tables = [flags.LONG_WITHOUT_VALUE, flags.LONG_WITH_OPTIONAL_VALUE, flags.LONG_WITH_VALUE]
    assert sum(map(len, tables)) == len(frozenset().union(*tables))
    assert not sbatch_line.SHORT_WITHOUT_VALUE & sbatch_line.SHORT_WITH_VALUE
    assert not [name for table in tables for name in table if not name[-1].isalnum()]
