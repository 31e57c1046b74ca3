"""backup, backups, restore: save a cluster's queue, accounting, keys, file and records in one encrypted file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output import formatting, tables
from headway.cli.output.operation_progress import follow_operation
from headway.cli.output.output_formats import Format, Output, print_json

if TYPE_CHECKING:
    from headway.schemas.storage.backups import BackupOut

PASSPHRASE = "HEADWAY_BACKUP_PASSPHRASE"  # noqa: S105 (the variable's name)
LEAST = 8
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help=f"File with the passphrase in its first line (default: {PASSPHRASE}, or a prompt).",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def backup(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder on the server's machine.")],
    cluster: ClusterName = None,
    key_file: KeyFile = None,
    output: Output = Format.table,
) -> None:
    """Write a cluster's queue, accounting, keys, file and Headway's records to one encrypted file, while jobs run.

    The file is verified before it gets its final name. Users' files (home, scratch) are not included.

    headway backup lab --to /backup"""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    phrase = passphrase(key_file, twice=True)
    final = follow_operation(api, api.backups.create(name, _absolute(to), phrase), quiet=output is Format.json)
    if output is Format.json:
        print_json(final)
        return
    for kept in final.kept:
        common.print_line(kept)
        common.print_note(f"restore it: headway restore {name} --from {kept}")


def backups(
    folder: Annotated[
        Path | None,
        typer.Option(
            "--in", metavar="DIR", help="Folder on the server's machine (default: those named in cluster files)."
        ),
    ] = None,
    verify: Annotated[
        str,
        typer.Option("--verify", metavar="FILE", help="Backup to read completely and check, or all."),
    ] = "",
    key_file: KeyFile = None,
    output: Output = Format.table,
) -> None:
    """List backups, latest first; --verify reads one completely.

    headway backups
    headway backups --in /backup --verify all"""
    api = common.connect()
    found = api.backups.list(_absolute(folder) if folder else "")
    if verify:
        named = [
            backup_out.path for backup_out in found if verify in ("all", backup_out.path, Path(backup_out.path).name)
        ]
        paths = named or ([] if verify == "all" else [_absolute((folder or Path()) / verify)])
        phrase = passphrase(key_file) if paths else ""
        found = [api.backups.verify(path, phrase) for path in paths]
    if output is Format.json:
        print_json(found)
        return
    if not found:
        common.print_line(f"no backup in {_absolute(folder) if folder else 'the folders of the cluster files'}")
        return
    columns = [
        tables.Column("CLUSTER"), tables.Column("MADE"), tables.Column("SIZE", right=True), tables.Column("SLURM", drop_order=2),
        tables.Column("WHOLE", drop_order=1), tables.Column("FILE", shrink=True, min_width=24),
    ]  # fmt: skip
    tables.print_table(columns, [_row(backup_out) for backup_out in found])


def _row(backup_out: BackupOut) -> list[tables.Cell]:
    whole = "" if backup_out.records is None else f"yes, {formatting.plural(backup_out.records, 'record')}"
    return [
        backup_out.cluster,
        formatting.local_time(backup_out.at),
        f"{backup_out.bytes / 2**20:.1f} MiB",
        backup_out.slurm_version,
        whole,
        backup_out.path,
    ]


def restore(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the backed-up cluster.")],
    source: Annotated[Path, typer.Option("--from", metavar="FILE", help="Backup file on the server's machine.")],
    key_file: KeyFile = None,
    yes: Yes = False,
    output: Output = Format.table,
) -> None:
    """Restore a cluster from a backup, on its machines or on new ones.

    Queue, history, fair share, people and their uids are restored; the head's current state is replaced.

    headway restore lab --from /backup/lab-20260101-020000.headway-backup"""
    common.require_cluster_name(cluster)
    api = common.connect()
    path = _absolute(source)
    here = any(summary.name == cluster for summary in api.clusters.list())
    if here:
        message = f"queue and accounting of {cluster} are replaced by those of {path}"
        if common.is_interactive():
            common.print_line(message)
        common.confirm(f"Restore {cluster}?", yes=yes, refusal=message)
    phrase = passphrase(key_file)
    final = follow_operation(
        api, api.backups.restore(cluster, path, phrase, confirmed=True), quiet=output is Format.json
    )
    if output is Format.json:
        print_json(final)
        return
    common.print_line(f"{cluster} is restored: headway queue {cluster}")


def _absolute(path: Path) -> str:
    return os.path.normpath(Path.cwd() / common.expand_home(path))


def passphrase(key_file: Path | None, *, twice: bool = False) -> str:
    """Returns the passphrase from the file, the environment or a prompt.

    Raises Refused for one that is too short, NeedsConfirmation without a terminal for the prompt."""
    from headway.errors import NeedsConfirmation, Refused

    if key_file is not None:
        try:
            lines = common.expand_home(key_file).read_text().strip().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(
                f"{key_file} can't be read: {error}", hint="give a file with the passphrase in its first line"
            ) from None
        found = lines[0] if lines else ""
    elif os.environ.get(PASSPHRASE):
        found = os.environ[PASSPHRASE]
    elif common.is_interactive():
        found = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=twice)
    else:
        raise NeedsConfirmation(
            "a backup is encrypted with a passphrase", hint=f"give --key-file FILE, or set {PASSPHRASE}"
        )
    if len(found) < LEAST:
        raise Refused(
            f"the passphrase has {formatting.plural(len(found), 'character')}, fewer than {LEAST}",
            hint="head -c 32 /dev/urandom | base64 > FILE creates a strong passphrase",
        )
    return found
