"""A restore keeps the state from before it, and no half-restored state is used when the head dies midway."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from headway.transport.remote_program import program_source
from tests.support.clusters.backup_archive import slurm_state, state_archive

# A database whose tables are the lines of a file.
MARIADB = """\
#!/bin/sh
case "$*" in
"-N -e select table_name"*) [ -z "$AWAY" ] || exit 1; [ ! -e "$DB" ] || cat "$DB" ;;
"-e drop database"*) rm -f "$DB" ;;
"-e create database"*) : >"$DB" ;;
slurm_acct_db) if [ -n "$DIES" ]; then head -n 1 >"$DB"; exit 1; fi; cat >"$DB" ;;
*) exit 9 ;;
esac
"""


@dataclass
class Head:
    """`died`: whether the load of a dump breaks off in its middle. `daemons`: what systemd says of them."""

    folder: Path
    died: bool = False
    daemons: str = "inactive"
    away: bool = False  # MariaDB

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir(parents=True)
        self.program("mariadb", MARIADB)
        self.program("mariadb-dump", '#!/bin/sh\ncat "$DB"\n')
        self.program("systemctl", '#!/bin/sh\nprintf "%s\\n\\n%s\\n" inactive "$DAEMONS"\n')
        self.state.parent.mkdir()
        slurm_state(self.state)
        self.db.write_text("old 1\nold 2\n")
        self.archive = state_archive(slurm_state(self.folder / "made" / "slurmctld"))
        (self.state / "job_state").write_text("of the head")

    def program(self, name: str, text: str) -> None:
        (self.folder / "bin" / name).write_text(text)
        (self.folder / "bin" / name).chmod(0o755)

    @property
    def state(self) -> Path:
        return self.folder / "srv" / "slurmctld"

    @property
    def base(self) -> Path:
        return self.folder / "srv" / "slurm_acct_db"

    @property
    def db(self) -> Path:
        return self.folder / "db"

    def run(self, *words: object, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        env = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "DB": str(self.db), "DIES": "yes" if self.died else "", "AWAY": "yes" if self.away else "",
            "DAEMONS": self.daemons,
        }  # fmt: skip
        argv = [sys.executable, "-c", program_source("slurm_state_backup"), *map(str, words)]
        return subprocess.run(argv, input=data, env=env, capture_output=True, check=False)

    def begin(self) -> int:
        return self.run("begin", self.state, self.base).returncode

    def take(self) -> int:
        return self.run("take", self.state, data=self.archive).returncode

    def load(self) -> int:
        return self.run("database", self.base, data=gzip.compress(b"new 1\nnew 2\n")).returncode

    def end(self) -> int:
        return self.run("end", self.folder / "restored", "r1", self.state, self.base).returncode

    @property
    def before(self) -> tuple[str, str]:
        """What is kept of before."""
        return (
            (self.state.with_name("slurmctld.before-restore") / "job_state").read_text(),
            gzip.decompress(self.base.with_name("slurm_acct_db.before-restore.sql.gz").read_bytes()).decode(),
        )

    @property
    def marked(self) -> list[str]:
        return sorted(path.name for path in self.state.parent.glob("*.restoring"))


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


def test_retried_restore_keeps_the_state_before_the_first_try(head: Head) -> None:
    head.died = True
    assert [head.begin(), head.take(), head.load()] == [0, 0, 1]
    assert head.db.read_text() == "new 1\n"
    assert head.marked == ["slurm_acct_db.restoring", "slurmctld.restoring"]
    head.died = False
    assert [head.begin(), head.take(), head.load()] == [0, 0, 0]
    assert head.before == ("of the head", "old 1\nold 2\n")
    assert (head.state / "job_state").read_text() == "job_state"
    assert head.db.read_text() == "new 1\nnew 2\n"
    assert head.end() == 0
    assert head.marked == []
    assert (head.folder / "restored").read_text() == "r1\n"
    assert head.end() == 0  # killed between the two


def test_next_restore_keeps_the_state_of_the_previous_restore(head: Head) -> None:
    for _ in range(2):
        assert [head.begin(), head.take(), head.load(), head.end()] == [0, 0, 0, 0]
    assert head.before == ("job_state", "new 1\nnew 2\n")


def test_retried_restore_keeps_an_empty_database_as_empty(head: Head) -> None:
    """Else the second try would keep the half of the first as what was there."""
    head.db.write_text("")
    head.died = True
    assert [head.begin(), head.take(), head.load()] == [0, 0, 1]
    head.died = False
    assert [head.begin(), head.take(), head.load()] == [0, 0, 0]
    assert head.before == ("of the head", "")


def test_restore_is_refused_while_a_slurm_daemon_runs(head: Head) -> None:
    head.daemons = "deactivating"
    done = head.run("begin", head.state, head.base)
    assert done.returncode == 1
    assert b"slurmdbd.service is deactivating" in done.stderr
    assert head.marked == []


def test_backup_is_refused_during_an_unfinished_restore(head: Head) -> None:
    assert head.begin() == 0
    done = head.run("state", head.state, "0")
    assert done.returncode == 1
    assert b"has not finished" in done.stderr
    assert done.stdout == b""


def test_restore_fails_while_the_database_does_not_answer(head: Head) -> None:
    head.begin()
    assert head.take() == 0
    head.away = True
    assert head.load() != 0
    head.away = False
    assert head.load() == 0
    assert head.before[1] == "old 1\nold 2\n"
    assert head.db.read_text() == "new 1\nnew 2\n"
