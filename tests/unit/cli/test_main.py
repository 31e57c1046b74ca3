"""The headway command ends each error with its code, and reports bugs readably."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headway import errors
from headway.cli.command_group import load_command
from headway.cli.main import print_error
from headway.cli.registry import ENTRIES, THEMES
from headway.schemas.storage.backups import BackupIn
from tests.support.cli_fakes import Cli, FakeApi, cli, cluster

__all__ = ["cli"]  # a fixture


def test_a_theme_of_the_help_holds_the_commands_of_one_folder() -> None:
    folders = [{entry.target.partition(".")[0] for entry in entries} for _, entries in THEMES]
    assert [len(folder) for folder in folders] == [1] * len(folders)
    assert len(set().union(*folders)) == len(folders)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_command_prints_its_help(cli: Cli, name: str) -> None:
    done = cli(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: headway {name}")


def test_headway_without_arguments_prints_help(cli: Cli) -> None:
    assert cli().out == cli("--help").out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.HeadwayError("m"), 1),
        (errors.InvalidSpec([errors.Fault("nodes", "too few")]), 2),
        (errors.NeedsConfirmation("m"), 3),
        (errors.NotAllowed("m"), 4),
        (errors.NotSignedIn("m"), 4),
        (errors.NotFound("m"), 5),
        (errors.Conflict("m"), 6),
        (errors.Unreachable("m"), 7),
        (errors.CommandFailed(["x"], 3, "no"), 1),
    ],
)
def test_errors_print_to_stderr_and_exit_with_their_code(cli: Cli, error: errors.HeadwayError, code: int) -> None:
    error.hint = "do this"
    cli.api.on("clusters.list", error)
    done = cli("ls")
    assert (done.code, done.out) == (code, "")
    assert done.err == f"error: {error.message}\n  do this\n"


def test_error_messages_escape_terminal_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """They may hold another person's: the name of a log file, what a job said."""
    print_error(
        "job 7 has not written /home/eve/\x1b]0;pwn\x07\x1b[2J\x9b31m\u202elog\n  second line", "look\x1b[1A\nthere"
    )
    captured = capsys.readouterr().err
    assert not set(captured) & set("\x1b\x07\x9b\u202e")
    assert captured.count("\n") == 4
    assert "\n  second line\n" in captured


def test_missing_server_error_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HEADWAY_URL", "HEADWAY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = Cli(FakeApi(), monkeypatch)("ls")
    assert done.code == 7
    assert done.err == "error: no server\n  headway server start\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("aply",), "no such command: aply; did you mean apply?"),
        (("ls", "--nope"), "--nope"),
        (("job",), "missing argument '[CLUSTER] JOB'"),
        (("job", "lab", "twelve"), "'twelve' is not a job id"),
        (("logs", "1", "2"), "one job id"),
        (("ls", "-o", "xml"), "xml"),
        (("token", "create", "--days", "0"), "--days"),
    ],
)
def test_wrong_usage_prints_one_message_and_exits_with_2(cli: Cli, words: tuple[str, ...], text: str) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert text in done.err.splitlines()[0]
    assert "--help" in done.err.splitlines()[1]


@pytest.mark.parametrize(
    "line",
    [
        "down '' --yes --delete-data", "down ''", "status ''", "queue '' -o json", "nodes ''", "roll '' --yes --stop",
        "scale '' 0 --yes", "scale '' gpu=0", "keys rotate munge ''", "invoice '' --period 2026-10 --close",
        "cancel '' 12", "job '' 12", "job retry '' 12", "logs '' 12", "exec '' -- x", "run '' -- x", "shell ''",
        "submit '' s.sbatch", "submit ''", "ssh ''", "ssh '' lab-1-1", "ssh-config '' --install", "notebook ''",
        "fault '' kill slurmctld", "backup '' --to /b", "restore '' --from /b", "container rm '' sha256:1",
        "dataset rm x@1 --yes --cluster ''", "incident return 1 --cluster ''", "node drain n -r x --cluster ''",
        "pipeline run p.yaml --cluster ''", "token create --cluster ''",
    ],
)  # fmt: skip
def test_commands_refuse_an_empty_cluster_name(
    cli: Cli, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`headway down "$NAME" --yes` where NAME is not set. No call may be made."""
    for call in (
        "clusters.status",
        "commands.stream",
        "clusters.ssh_access",
        "nodes.inject_fault",
        "incidents.return_node",
        "nodes.drain",
    ):
        cli.api.on(call, AssertionError(call))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text("name: p\n")
    done = cli(*shlex.split(line))
    assert (done.code, done.out) == (2, ""), done.err
    assert "the cluster's name is empty" in done.err


@pytest.mark.parametrize("name", ENTRIES)
def test_optional_cluster_parameters_default_to_none(name: str) -> None:
    found = load_command(ENTRIES[name])
    for command in getattr(found, "commands", {"": found}).values():
        assert [p.default for p in command.params if p.name == "cluster" and not p.required] in ([], [None])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("notebook lab --time infinite", "--time 'infinite': has the wrong format"),
        ("notebook lab --time=90m", "--time '90m': has the wrong format"),
        ("notebook lab --gpus 1000", "--gpus 1000: should be less than or equal to 64"),
        ("notebook lab --idle 100000", "--idle 100000: should be less than or equal to 1440"),
        ("token create --days 99999999", "--days 99999999: should be less than"),
        (f"token create --name {'x' * 201}", "should have at most 200 characters"),
        (f"people set ann member --user {'x' * 33}", "should have at most 32 characters"),
        ("fault lab xid 79 lab-1-2 --gpu 100", "--gpu 100: should be less than or equal to 63"),
        ("fault lab xid 79 lab-1-2 --text é", r"--text '\xe9': has the wrong format"),
        ("job retry lab 12_9999999999", "task '9999999999': has the wrong format"),
        ("pipeline run latin.yaml --cluster lab", "latin.yaml is not UTF-8 text"),
        ("plan latin.yaml", "latin.yaml is not UTF-8 text"),
        ("submit lab ~nosuch/x.sbatch", "~nosuch/x.sbatch: this home folder does not exist"),
        ("dataset add tiny --from ~nosuch/x --cluster lab", "~nosuch/x: this home folder does not exist"),
        ("backup lab --to ~nosuch/x --key-file key", "~nosuch/x: this home folder does not exist"),
        ("backup lab --to /x --key-file ~nosuch/key", "~nosuch/key: this home folder does not exist"),
        ("backups --in ~nosuch/b", "~nosuch/b: this home folder does not exist"),
        ("run lab --no-files --launcher foo -- x", "--launcher 'foo': should be 'torchrun'"),
        ("run lab -N 0 --gpus -1 -- x", "--gpus -1: should be greater than or equal to 0"),
        ("run lab --no-files --stage-in A -- x", "--stage-in 'A': has the wrong format"),
        ("run lab --no-files --env NOT_SET_HERE -- x", "--env NOT_SET_HERE: it is not set in this environment"),
        ("usage lab --nodes --team v", "--team can't be combined with --nodes"),
        ("usage lab --nodes --job 3", "--job can't be combined with --nodes"),
        ("usage lab --nodes --by user", "--by can't be combined with --nodes"),
        ("usage lab --job 3 --by user", "--by can't be combined with --runs"),
        ("goodput lab --job 4 --period 2020-01", "--period can't be combined with --job"),
        ("submit lab --env", "--env needs a value"),
        ("submit lab --stage-in 'a b' s.sbatch", "--stage-in a b: not a dataset"),
        ("submit lab --wrap hostname s.sbatch", "can't be combined with the script s.sbatch"),
    ],
)
def test_invalid_option_values_exit_with_2(
    cli: Cli, line: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    (tmp_path / "s.sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "key").write_text("long enough\n")
    cli.api.on("clusters.list", [cluster()]).on("notebooks.list", [])
    for call in ("backups.create", "backups.list", "datasets.add", "tokens.create", "people.put"):
        cli.api.on(call, AssertionError(call))
    done = cli(*shlex.split(line))
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert "--stage_in" not in done.err


def test_error_never_shows_a_secret_read_from_a_file(cli: Cli, tmp_path: Path) -> None:
    """It may come from a file with a secret."""
    (tmp_path / "key").write_text("S3CR3T" * 1000)
    cli.api.on("clusters.list", [cluster()])
    cli.api.on("backups.create", lambda _, to, passphrase: BackupIn(to=to, passphrase=passphrase))
    done = cli("backup", "lab", "--to", "/x", "--key-file", str(tmp_path / "key"))
    assert (done.code, "S3CR3T" in done.err) == (2, False)
    assert "passphrase: should have at most 4096 characters" in done.err


def test_argument_that_is_not_utf8_exits_with_2(cli: Cli) -> None:
    """As a shell hands over the name of a file that is written in Latin-1."""
    word = b"caf\xe9".decode(errors="surrogateescape")
    cli.api.on("jobs.create_run", lambda _, request: request.model_dump_json())
    done = cli("run", "lab", "--no-files", "--", "cat", word)
    assert (done.code, done.err.splitlines()[0]) == (2, r"error: 'caf\udce9' is not UTF-8")


def test_invalid_server_answer_exits_with_70(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cli.api.on("clusters.list", lambda: [type(cluster()).model_validate({"name": 1})])
    assert cli("ls").code == 70


def test_unexpected_exception_is_written_to_a_private_file(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cli.api.on("clusters.list", RuntimeError("the moon\nis full"))
    done = cli("ls")
    assert done.code == 70
    first, second = done.err.splitlines()
    assert first == "error: this is a bug in headway: RuntimeError: the moon"
    log = Path(second.removeprefix("  details: "))
    assert log.is_relative_to(tmp_path)
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_unexpected_exception_is_logged_even_if_state_home_is_unusable(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    cli.api.on("clusters.list", RuntimeError("x"))
    done = cli("ls")
    assert done.code == 70
    log = Path(done.err.splitlines()[1].removeprefix("  details: "))
    assert log.exists()
    log.unlink()


@pytest.mark.parametrize("name", ["jobs.nope", "nope.list", "apply", "jobs"])
def test_fake_api_refuses_calls_that_the_client_lacks(name: str) -> None:
    with pytest.raises(AssertionError, match="is no call of the client"):
        FakeApi().on(name, None)


@pytest.mark.parametrize("words", [["queue"], ["exec"], ["job"], ["apply"], ["token", "create"]])
def test_help_shows_no_python_types(cli: Cli, words: list[str]) -> None:
    output = cli(*words, "--help").out
    assert not re.search(r"<(str|int|path|list.*|file)>", output)
    assert "[default:\n" not in output
