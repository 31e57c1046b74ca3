"""A submission sends the right request to the head and returns sbatch's and scancel's own messages."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headway.domain.slurm.sbatch_options import parse_options, script_lines
from headway.errors import CommandFailed, NotAllowed, NotFound, Refused
from headway.jobs.remote.user_helper import helper_argv
from headway.jobs.submission.submit import cancel_jobs, run_command, run_sbatch, script_name
from headway.jobs.submission.user_script_lines import insert_arguments
from headway.schemas.submission.submit_request import SubmitIn
from headway.transport.process import CommandResult
from headway.transport.remote_program import program_source as text
from tests.support.clusters.builders import machine, open_to_all, question_of

HEAD = machine("lab-head")


class Head:
    """One answer; the question is kept."""

    def __init__(self, code: int = 0, out: str = "", err: str = "") -> None:
        self.answer = (code, out, err)
        self.ask: dict[str, Any] = {}
        self.argv: Sequence[str] = ()
        self.stdin: bytes | None = None
        self.most = 0

    async def remote(self, machine: Any, argv: Sequence[str], **options: Any) -> CommandResult:
        self.argv, self.stdin, self.most = argv, options.get("input"), options.get("max_output", 0)
        if argv[-1] == text("user_helper"):
            self.ask, self.stdin = question_of(options["input"])
        elif argv[0] == "python3":
            self.ask = json.loads(argv[-1])
        code, out, err = self.answer
        return CommandResult(tuple(argv), code, out, err, 0.0, out.encode())

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is streamed")


SCRIPT = "#!/bin/bash\n#SBATCH -N2\ntrue\n"


async def test_submit_sends_the_script_with_its_arguments_on_stdin() -> None:
    head = Head(out="Submitted batch job 42\n")
    request = SubmitIn(
        args=["-J", "a b"], script=SCRIPT, script_name="x/train.sbatch", script_args=["$(id)"], chdir="w"
    )
    found = await run_sbatch(head, HEAD, request, "alice")
    assert (found.job_id, found.user, found.cluster, found.message) == (42, "alice", "lab", "Submitted batch job 42")
    assert head.stdin == insert_arguments(SCRIPT, ["$(id)"])[0].encode()
    assert "$(id)" not in " ".join(head.argv)
    assert head.ask == {
        "do": "sbatch",
        "user": "alice",
        "args": ["-J", "a b"],
        "cwd": "w",
        "script_name": "train.sbatch",
        "script_args": [],
        "has_script": True,
    }


@pytest.mark.parametrize(
    ("args", "line", "more"),
    [
        ([], "--export=NONE", ["--export=HF_TOKEN,LR"]), ([], "--export A,B=1", ["--export=A,B=1,HF_TOKEN,LR"]),
        ([], "--export=ALL,B=1", []), ([], "-N2", []), (["--export", "none"], "--export=ALL", ["--export=HF_TOKEN,LR"]),
        (["--export=all"], "--export=NONE", []),
    ],
)  # fmt: skip
async def test_given_variables_are_added_to_a_restricted_export(args: list[str], line: str, more: list[str]) -> None:
    head = Head(out="1\n")
    given = {"HF_TOKEN": "s3cret", "LR": "1", "SLURM_TIME_FORMAT": "%s"}
    await run_sbatch(head, HEAD, SubmitIn(args=args, script=f"#!/bin/sh\n#SBATCH {line}\n", env=given), "alice")
    assert head.ask["args"] == [*args, *more]
    assert head.ask["env"] == given
    assert not any("s3cret" in word for word in head.argv), "everybody on the head can read a command's words"


@pytest.mark.parametrize("lines", ["--export=NIL", "--export=NONE\n#SBATCH hetjob\n#SBATCH -N2"])
async def test_given_variables_are_refused_if_export_blocks_them(lines: str) -> None:
    script = f"#!/bin/sh\n#SBATCH {lines}\n"
    with pytest.raises(Refused, match="does not export HF_TOKEN to the job"):
        await run_sbatch(Head(), HEAD, SubmitIn(script=script, env={"HF_TOKEN": "s3cret"}), "alice")
    head = Head(out="1\n")
    await run_sbatch(head, HEAD, SubmitIn(script=script, env={"SLURM_TIME_FORMAT": "%s"}), "alice")
    assert head.ask["args"] == []


@pytest.mark.parametrize(("out", "job"), [("17\n", 17), ("17;lab\n", 17), ("", 0), ("slurm 24.11.5\n", 0)])
async def test_job_id_is_parsed_from_every_sbatch_output_form(out: str, job: int) -> None:
    assert (await run_sbatch(Head(out=out), HEAD, SubmitIn(script=SCRIPT), "alice")).job_id == job


async def test_submit_returns_the_error_message_of_sbatch() -> None:
    words = "sbatch: error: invalid partition specified: nope"
    with pytest.raises(Refused, match=words):
        await run_sbatch(Head(1, err=words + "\n"), HEAD, SubmitIn(script=SCRIPT), "alice")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("there is no user eve on lab-head", NotFound),
        ("bob has no access to this cluster any more", NotAllowed),
        ("lab-head: /nope can't be used by alice: No such file or directory", Refused),
    ],
)
async def test_helper_refusals_become_matching_errors(message: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=message.split(":")[-1].strip()):
        await run_sbatch(Head(97, err=message + "\n"), HEAD, SubmitIn(script=SCRIPT), "alice")


@pytest.mark.parametrize(
    "request_",
    [
        SubmitIn(args=["--wait"], script=SCRIPT),
        SubmitIn(args=["-HW"], script=SCRIPT),
        SubmitIn(script="#!/bin/bash\n#SBATCH -N2 --wait # for all\ntrue\n"),
        SubmitIn(script="#!/bin/bash\n\n# text\n#SBATCH -HW\ntrue\n"),
        SubmitIn(script="#!/bin/bash\n  # text\n#SBATCH -HW\ntrue\n"),
        SubmitIn(script="echo no interpreter\n"),
        SubmitIn(args=["-N2"]),
        SubmitIn(script=SCRIPT, script_name=".."),
        SubmitIn(args=["x" * 1000] * 200, script=SCRIPT),
        SubmitIn(script="#!" + "x" * 5_000_000),
    ],
    ids=[
        "wait",
        "letters",
        "line",
        "letters in a line",
        "below an indented comment",
        "no interpreter",
        "no script",
        "name",
        "long words",
        "long script",
    ],
)
async def test_invalid_submissions_are_refused_before_any_command(request_: SubmitIn) -> None:
    head = Head()
    with pytest.raises(Refused):
        await run_sbatch(head, HEAD, request_, "alice")
    assert head.argv == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"args": ["a\0b"]}, "args contains a NUL byte"),
        ({"env": {"A": "\ud800"}}, "env.A contains invalid Unicode"),
        ({"env": {"\0": ""}}, "a name in env contains a NUL byte"),
        ({"args": ["x"] * 10_001}, "args"),
        ({"args": ["x" * 200_000]}, "args.0"),
        ({"script_args": ["x"] * 100_001}, "script_args"),
        ({"script": "#!/bin/sh\n" + "#SBATCH -H\n" * 30_000}, "its #SBATCH lines have more than 256 KiB"),
    ],
)
def test_submit_request_rejects_impossible_values(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SubmitIn(**{"script": SCRIPT, **words})


def test_option_parsing_takes_linear_time() -> None:
    """Read one from another's rest, these would take minutes."""
    many, began = 400_000, time.process_time()
    assert sum(1 for _ in parse_options(["-N", "2"] * many)) == many
    assert sum(1 for _ in parse_options([f"-{'H' * many}"])) == many
    assert len(script_lines(f"#SBATCH {'-H ' * many}# x")[0]) == many
    assert time.process_time() - began < 10


def test_script_name_is_the_last_path_component() -> None:
    assert script_name("../../etc/cron.d/x") == "x"
    assert script_name("train it.sbatch") == "train it.sbatch"


async def test_cancel_runs_scancel_as_the_user_or_as_operator() -> None:
    head = Head()
    await cancel_jobs(head, HEAD, "alice", ["12", "13_4", "14_[1-3,7]"])
    assert head.ask["user"] == "alice"
    assert head.ask["argv"] == ["scancel", "--verbose", "12", "13_4", "14_[1-3,7]"]
    await cancel_jobs(head, HEAD, "alice", ["12"], as_operator=True)
    assert (head.ask["user"], head.ask["operator"]) == ("headway", True)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("scancel: error: Kill job error on job id 7: Access/permission denied\n", NotAllowed),
        (
            "scancel: Terminating job 7\nscancel: error: Kill job error on job id 7: Invalid job id specified\n",
            NotFound,
        ),
        ("scancel: error: slurmctld away\n", CommandFailed),
    ],
)
async def test_scancel_messages_become_matching_errors(message: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await cancel_jobs(Head(1, err=message), HEAD, "alice", ["7"])


@pytest.mark.parametrize("bad", ["", "7; id", "--user=root", "-9", "all"])
async def test_cancel_refuses_anything_but_job_ids(bad: str) -> None:
    head = Head()
    with pytest.raises(Refused):
        await cancel_jobs(head, HEAD, "alice", [bad])
    assert head.argv == ()


async def test_run_command_returns_exit_code_and_output() -> None:
    head = Head(3, "out", "err")
    assert await run_command(head, HEAD, "root", ["sh", "-c", "x"], b"in") == (3, b"out", b"err")
    assert (head.argv, head.stdin) == (["sh", "-c", "x"], b"in")
    assert await run_command(head, HEAD, "alice", ["id"]) == (3, b"out", b"err")
    assert head.ask == {"do": "exec", "user": "alice", "argv": ["id"], "cwd": ""}


async def test_run_command_refuses_output_above_the_limit() -> None:
    large = "x" * (8 * 1024 * 1024)
    assert (await run_command(Head(0, large), HEAD, "root", ["cat", "f"]))[1] == large.encode()
    for head in (Head(0, large + "x"), Head(0, large, "x")):
        with pytest.raises(Refused, match="cat ended with exit code 0, but its output is longer than 8 MiB"):
            await run_command(head, HEAD, "root", ["cat", "f"])
        assert head.most < 9 * 1024 * 1024, "nor is more than that held until then"


# ---- the program itself, as far as it can be run here


def program(ask: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *helper_argv(ask)[1:]], capture_output=True, text=True, timeout=60, check=False, input=""
    )


def test_user_helper_refuses_root_and_unknown_users() -> None:
    for do in ("exec", "sbatch", "follow"):
        ask = {
            "do": do,
            "argv": ["id"],
            "cwd": "/",
            "path": "/etc/shadow",
            "offset": 0,
            "has_script": False,
            "args": [],
        }
        ran = program({**ask, "user": pwd.getpwuid(0).pw_name})
        assert (ran.returncode, ran.stdout) == (97, "")
        assert "nothing is done as root" in ran.stderr
        ran = program({**ask, "user": "no-such-person"})
        assert (ran.returncode, ran.stdout) == (97, "")
        assert "there is no user no-such-person" in ran.stderr


def test_user_helper_refuses_to_read_a_log_as_root() -> None:
    ask = {"do": "read", "files": [{"user": "root", "path": "/etc/shadow", "offset": 0, "limit": 100}]}
    ran = program(ask)
    assert json.loads(ran.stdout) == {"error": "no user root"}


def test_user_helper_imports_no_slow_modules() -> None:
    slow = ("subprocess", "tempfile", "shutil", "asyncio")
    code = (
        f"import sys; exec({text('user_helper')!r}, {{'__name__': 'p'}});"
        "import user_helper.__main__, user_helper.commands, user_helper.logs, user_helper.serve;"
        f"print([m for m in {slow!r} if m in sys.modules])"
    )
    argv = [sys.executable, "-I", "-S", "-c", code]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_background_process_of_a_login_profile_does_not_block(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    (tmp_path / ".bash_profile").write_text("(sleep 30 &)\nexport SITE=ours\n")
    open_to_all(tmp_path)
    code = f"""
import pwd
exec({text("user_helper")!r}, {{"__name__": "p"}})
from user_helper import identity, login_environment as login
login.LOGIN_S, identity.SESSION, identity.OLD = 25, "/nowhere", "/"
entry = pwd.struct_passwd(("nobody", "x", {nobody.pw_uid}, {nobody.pw_gid}, "", {str(tmp_path)!r}, "/bin/bash"))
print(login.read_login_environment(entry)["SITE"])
"""
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout.strip() == "ours", ran.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("profile", ["exec sleep 1000\n", "yes >&$0 &\nexec yes >&$0\n"])
def test_login_profile_is_limited_in_time_and_output(tmp_path: Path, profile: str) -> None:
    """It runs as the person, but root waits for what it says."""
    nobody = pwd.getpwnam("nobody")
    (tmp_path / ".bash_profile").write_text(profile)
    open_to_all(tmp_path)
    code = f"""
import pwd
exec({text("user_helper")!r}, {{"__name__": "p"}})
from user_helper import identity, login_environment as login
login.LOGIN_S, login.MOST_ENVIRONMENT, identity.SESSION, identity.OLD = 1, 100_000, "/nowhere", "/"
entry = pwd.struct_passwd(("nobody", "x", {nobody.pw_uid}, {nobody.pw_gid}, "", {str(tmp_path)!r}, "/bin/bash"))
login.read_login_environment(entry)
"""
    argv = [sys.executable, "-I", "-S", "-c", code]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 97, ran.stderr
    assert "check their .profile" in ran.stderr
