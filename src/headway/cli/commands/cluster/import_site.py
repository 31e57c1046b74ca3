"""import: makes a cluster file of a running Slurm site, or compares both. Nothing is changed there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.commands.cluster.compare_site import compare_site
from headway.cli.commands.cluster.site_source import read_site_files
from headway.cli.output.formatting import plural
from headway.cli.output.output_formats import Format, Output, print_json

if TYPE_CHECKING:
    from headway.slurm_import.importer import Imported, SiteFiles

CLUSTER, CATALOGUE, REPORT, REHEARSAL = "cluster.yaml", "catalogue.yaml", "report.md", "rehearsal.yaml"


def import_site(
    source: Annotated[
        str,
        typer.Option("--from", metavar="SOURCE", help="Folder with slurm.conf, or the head: ssh://[USER@]HEAD[:PORT]."),
    ],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Folder to write to (default: the cluster's name).")
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help=f"Also write {REHEARSAL}: the cluster in local containers, one node a group.")
    ] = False,
    with_scripts: Annotated[
        bool,
        typer.Option("--with-scripts", help="Also copy prolog, epilog and job_submit.lua that slurm.conf names."),
    ] = False,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare", metavar="CLUSTER", help="Write nothing; compare the site with this running cluster.",
            autocompletion=common.complete_cluster,
        ),
    ] = None,
    output: Output = Format.table,
) -> None:  # fmt: skip
    """Make a cluster file of a running Slurm site.

    Read slurm.conf with its includes, gres.conf, topology, accounts, QOS, users and mounts; change nothing there. Write
    cluster.yaml, catalogue.yaml with the plans of its nodes, and report.md with a verdict on each key and line that
    was read. Never overwrite a file. Passwords and keys in configuration are masked.

    With --with-scripts, copy prolog, epilog and job_submit.lua, and name them under scripts in the order in which Slurm runs
    them. A script with a line that may have a password or key is not copied; this finds only common forms.

    With --compare, print what scontrol, sacctmgr and sshare say of the site and of the cluster side by side: each
    difference with its reason. The exit status is 1 if a difference has no reason, or if a part was not compared.

    headway import --from ssh://root@slurm-head --to site
    headway import --from ssh://root@slurm-head --compare helix"""
    from headway.slurm_import.importer import import_site as make

    files = read_site_files(source, with_scripts=with_scripts)
    if compare is not None:
        if to is not None or rehearse or with_scripts:
            raise typer.BadParameter("--compare writes no files: leave out --to, --rehearse and --with-scripts")
        compare_site(source, files, common.require_cluster_name(compare), output)
        return
    imported = make(files, with_scripts=with_scripts)
    written = _write(to or Path(imported.spec["name"]), imported, rehearse=rehearse)
    if output is Format.json:
        from headway.slurm_import.report import report_data

        print_json({**report_data(imported), "files": [str(file) for file in written]})
        return
    for line in _summary(files, imported, written):
        common.print_line(line)


def _write(folder: Path, imported: Imported, *, rehearse: bool) -> list[Path]:
    from headway.slurm_import.importer import rehearsal
    from headway.slurm_import.report import cluster_yaml_head, report_markdown
    from headway.slurm_import.verdicts import count_kinds
    from headway.validation.yaml_parser import dump_yaml

    head = cluster_yaml_head(imported, count_kinds(imported.entries))
    texts = {
        CLUSTER: head + dump_yaml(imported.spec),
        CATALOGUE: dump_yaml(imported.catalogue),
        REPORT: report_markdown(imported),
    }
    if rehearse:
        texts[REHEARSAL] = head + dump_yaml(rehearsal(imported))
    return common.write_new_files(folder, {**texts, **imported.scripts})[: len(texts)]


def _summary(files: SiteFiles, imported: Imported, written: list[Path]) -> list[str]:
    from headway.slurm_import.report import needs_person
    from headway.slurm_import.verdicts import Kind, count_kinds

    counts: dict[Any, int] = count_kinds(imported.entries)
    decide = sum(1 for _, verdict in imported.entries if needs_person(verdict))
    sizes = [plural(imported.nodes, "node"), plural(len(imported.spec.get("partitions", ())), "partition")]
    sizes += [plural(len(imported.spec.get("teams", ())), "team"), plural(imported.users, "user")]
    lines = [
        f"read {plural(len(files.texts), 'file')} of {files.source}: {', '.join(sizes)}",
        f"  {counts[Kind.CARRIED]:,} keys and lines are carried, {counts[Kind.KEPT]:,} kept under slurm, "
        f"{counts[Kind.SAME]:,} the same as Headway's default",
        f"  {counts[Kind.NOT_CARRIED]:,} are not carried; {decide:,} of them need a decision: {written[2]}",
    ]
    lines.append("  the new cluster is fresh: history, fair share and queue of the site come along by headway adopt")
    if imported.scripts:
        lines.append(
            f"  {plural(len(imported.scripts), 'script')} of the site copied: {', '.join(sorted(imported.scripts))}"
        )
    lines += [f"  not read: {path}: {why}" for path, why in sorted(imported.unread.items())[:5]]
    if len(imported.unread) > 5:
        lines.append(f"  not read: {len(imported.unread) - 5:,} more, listed in the report")
    lines += [f"  note: {note}" for note in imported.notes[:5]]
    lines += [f"  correct {written[0]}: {fault}" for fault in imported.faults[:5]]
    lines += [
        f"wrote {', '.join(str(file) for file in written)}",
        f"  next: headway plan {written[-1] if len(written) > 3 else written[0]}",
    ]
    return lines
