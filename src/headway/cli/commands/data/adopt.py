"""adopt: the history of a Slurm site as a backup of the cluster that takes its place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli import common
from headway.cli.commands.data.backup import KeyFile, passphrase
from headway.cli.output import formatting
from headway.cli.output.output_formats import Format, Output, print_json


def adopt(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Cluster file that headway import has written.")],
    source: Annotated[
        Path,
        typer.Option("--from", metavar="FOLDER", help="Folder with the site's state (.tar.gz) and database (.sql.gz)."),
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder for the backup, on the server's machine.")],
    key_file: KeyFile = None,
    output: Output = Format.table,
) -> None:
    """Pack a Slurm site's history, fair share and queue for its new cluster.

    The result is a backup of the cluster that does not exist yet: headway restore makes the cluster with it. Running jobs are
    not kept.

    headway adopt helix/cluster.yaml --from helix/history --to helix"""
    from headway.backup.site_history import pack_history
    from headway.catalog.node_images import DEFAULT_IMAGE, IMAGES
    from headway.sdk.cluster_file import load_document
    from headway.validation.syntax_rules import user_name_from

    document = load_document(file)
    api = common.connect()
    name = api.clusters.plan(document).cluster  # which checks the file too
    owner = user_name_from(api.me().person)
    spec = document.model_copy(update={"owner": owner}).model_dump()
    image = IMAGES[document.spec.get("image", DEFAULT_IMAGE)]
    phrase = passphrase(key_file, twice=True)
    folders = [Path.cwd() / common.expand_home(one) for one in (source, to)]
    packed = pack_history(folders[0], spec, owner, name, image.slurm.name, phrase, folders[1])
    if output is Format.json:
        print_json({"path": str(packed.path), "bytes": packed.bytes, "slurm": packed.slurm, "scripts": packed.scripts})
        return
    scripts = formatting.plural(packed.scripts, "job script")
    common.print_line(f"history of {name}, Slurm {packed.slurm}, with {scripts}: {packed.bytes / 2**20:.1f} MiB")
    common.print_line(str(packed.path))
    common.print_note(f"next, with the site's Slurm stopped: headway restore {name} --from {packed.path}")
