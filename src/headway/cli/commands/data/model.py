"""model ls|show|promote|promotions|approve|gates|manifest|key|verify: versions of models, and their promotion."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import common
from headway.cli.common import ClusterOption
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.output.terminal import without_control_characters
from headway.errors import NotFound, Refused

if TYPE_CHECKING:
    from headway.schemas.storage.models import ModelOut, ModelVersionOut, PromotionOut
    from headway.sdk.client import Client

app = typer.Typer(
    help="Promote versions of models that pass their gates.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
_VERSION = re.compile(r"(?:([^/@]+)/)?([^/@]+)@([1-9][0-9]{0,8}|latest)")
Version = Annotated[str, typer.Argument(metavar="[TEAM/]NAME@VERSION", help="Version of a model: iris@3, iris@latest.")]
_STYLES = {
    "promoted": "good",
    "passed": "good",
    "pending": "warn",
    "running": "warn",
    "promoting": "warn",
    "waiting": "warn",
    "planned": "dim",
    "skipped": "dim",
    "refused": "bad",
    "failed": "bad",
}


@app.command("ls")
def ls(cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """List the models of your teams with their aliases.

    headway model ls"""
    api = common.connect()
    found = api.models.list(common.choose_cluster(api, cluster))
    if output is Format.json:
        print_json(found)
        return
    columns = [
        tables.Column("MODEL"), tables.Column("TEAM"), tables.Column("LATEST", right=True),
        tables.Column("ALIASES", shrink=True, min_width=20),
    ]  # fmt: skip
    tables.print_table(columns, [[one.name, one.team, _latest(one), _aliases(one)] for one in found])


@app.command("show")
def show(
    model: Annotated[str, typer.Argument(metavar="[TEAM/]NAME", help="Model, such as iris.")],
    cluster: ClusterOption = None,
    output: Output = Format.table,
) -> None:
    """Show the versions of a model with their jobs, metrics and approvals.

    headway model show iris"""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    team, _, model_name = model.rpartition("/")
    found = api.models.get(name, team or _team_of(api, name, model_name), model_name)
    if output is Format.json:
        print_json(found)
        return
    common.print_line(f"{found.name} of team {found.team} on {name}")
    columns = [
        tables.Column("VERSION", right=True), tables.Column("ALIASES"), tables.Column("JOB", right=True),
        tables.Column("METRICS", shrink=True, min_width=20, drop_order=1), tables.Column("APPROVALS"),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [f"{one.version}", ", ".join(one.aliases), str(one.job or ""), _metrics(one), _approvals(found, one.version)]
        for one in found.versions
    ]
    tables.print_table(columns, rows)


@app.command("promote")
def promote(
    version: Version,
    to: Annotated[str, typer.Option("--to", metavar="ALIAS", help="Alias that the version gets.")],
    gates: Annotated[
        Path | None, typer.Option("--gates", metavar="FILE", help="Gates that the version must pass (YAML).")
    ] = None,
    cluster: ClusterOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the gates that need no job; change nothing.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is promoted or refused.")] = True,
    no_files: Annotated[bool, typer.Option("--no-files", help="Do not upload the folder of the gates file.")] = False,
    user: Annotated[str, typer.Option("--as", help="Submit jobs as this user (admins only).")] = "",
    output: Output = Format.table,
) -> None:
    """Give a version an alias if it passes all gates, and keep a signed manifest. Exits with 1 if it is refused.

    headway model promote iris@3 --to production --gates gates.yaml"""
    from headway.schemas.storage.models import PromotionIn
    from headway.sdk.submission import build_request

    document = _read_gates(gates) if gates is not None else {}
    api = common.connect()
    lab = common.choose_cluster(api, cluster)
    team, name, number = _find_version(api, lab, version)
    request = build_request(
        PromotionIn, model=name, version=number, team=team, to=to, gates=document, user=user, dry_run=dry_run
    )
    if gates is not None and document.get("jobs") and not no_files and not dry_run:
        from headway.sdk.submission import send_files

        digest, git = send_files(api.bundles, lab, gates.resolve().parent, user=user)
        request = request.model_copy(update={"bundle": digest, "git": git})
    found = api.models.promote(lab, request)
    if not dry_run and wait:
        common.print_note(f"promotion {found.id}; it goes on without this command")
        found = api.models.wait(
            lab, found.id, on_lost=lambda error: common.print_note(f"{error.message}; still waiting")
        )
    _show(found, output)
    if found.state == "refused" or any(gate.state == "failed" for gate in found.gates):
        raise typer.Exit(1)
    if not dry_run and not wait and output is not Format.json:
        common.print_note(f"follow it: headway model promotions {found.id}")


@app.command("promotions")
def promotions(
    promotion: Annotated[str, typer.Argument(metavar="[PROMOTION]", help="Id of one promotion.")] = "",
    cluster: ClusterOption = None,
    output: Output = Format.table,
) -> None:
    """List promotions, latest first, or show one with its gates."""
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    if promotion:
        _show(api.models.promotion(name, promotion), output)
        return
    found = api.models.promotions(name)
    if output is Format.json:
        print_json(found)
        return
    columns = [
        tables.Column("ID"), tables.Column("MODEL"), tables.Column("TO"), tables.Column("BY"), tables.Column("STATE"),
        tables.Column("WHY", shrink=True, min_width=20),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [one.id, f"{one.team}/{one.model}@{one.version}", one.alias, one.person, _state(one.state), one.why]
        for one in found
    ]
    tables.print_table(columns, rows)


@app.command("approve")
def approve(
    version: Version,
    name: Annotated[str, typer.Argument(metavar="APPROVAL", help="Name of the gate, such as licence or data.")],
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Reason, for the record.")] = "",
    cluster: ClusterOption = None,
    output: Output = Format.table,
) -> None:
    """Approve a version with its present files, for gates with `approval`. Leads of the team, operators and admins can.

    headway model approve iris@3 licence --note "CC BY 4.0, see LICENSE" """
    from headway.schemas.storage.models import ApprovalIn
    from headway.sdk.submission import build_request

    api = common.connect()
    lab = common.choose_cluster(api, cluster)
    team, model, number = _find_version(api, lab, version)
    request = build_request(ApprovalIn, version=number, name=name, note=note)
    found = api.models.approve(lab, team, model, request)
    if output is Format.json:
        print_json(found)
        return
    common.print_line(f"{found.person} approves {name} of {model}@{number} as {', '.join(found.roles)}")


@app.command("gates")
def gates(
    team: Annotated[str, typer.Argument(metavar="TEAM", help="Team.")],
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="Alias, such as production.")],
    file: Annotated[
        Path | None, typer.Option("--set", metavar="FILE", help="Require the gates of this file (YAML) from now on.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Require none from now on.")] = False,
    cluster: ClusterOption = None,
    output: Output = Format.table,
) -> None:
    """Show or set the gates that every promotion of a team to an alias must pass. Leads of the team and admins set them.

    headway model gates vision production --set gates.yaml"""
    from headway.schemas.storage.models import RequiredGatesIn

    if file is not None and remove:
        raise typer.BadParameter("give --set or --remove, not both")
    document = _read_gates(file) if file is not None else {}
    api = common.connect()
    lab = common.choose_cluster(api, cluster)
    if file is None and not remove:
        found = api.models.required_gates(lab, team, alias)
    else:
        found = api.models.require_gates(lab, team, alias, RequiredGatesIn(gates=document))
    if output is Format.json:
        print_json(found)
        return
    names = list(found.gates.get("gates", {}))
    told = f"{', '.join(names)}, set by {found.person}" if names else "none"
    common.print_line(f"gates that {alias} requires in team {team}: {told}")


@app.command("manifest")
def manifest(
    promotion: Annotated[str, typer.Argument(metavar="PROMOTION", help="Id of the promotion.")],
    cluster: ClusterOption = None,
) -> None:
    """Print the signed manifest of a promotion.

    headway model manifest m-1a2b3c4d > manifest.json"""
    api = common.connect()
    common.print_line(api.models.manifest(common.choose_cluster(api, cluster), promotion))


@app.command("key")
def key(cluster: ClusterOption = None) -> None:
    """Print the public key with which the manifests of a cluster are verified.

    headway model key > lab.pub"""
    api = common.connect()
    common.print_line(api.models.signing_key(common.choose_cluster(api, cluster)).rstrip())


@app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(metavar="MANIFEST", help="Manifest of a promotion.")],
    key_file: Annotated[Path, typer.Option("--key", metavar="FILE", help="Public key of the cluster (PEM).")],
    files: Annotated[
        Path | None, typer.Option("--files", metavar="DIR", help="Folder with the model, whose files are compared.")
    ] = None,
    output: Output = Format.table,
) -> None:
    """Check the signature of a manifest, and the files of a model. Needs no server.

    headway model verify manifest.json --key lab.pub --files ./model"""
    from headway.signed_statement import open_envelope

    statement = open_envelope(_read_bytes(file), _read_bytes(key_file))
    if files is not None:
        _compare(statement, files)
    if output is Format.json:
        print_json(statement)
        return
    for line in _statement_lines(statement, files):
        common.print_line(without_control_characters(line))


def _find_version(api: Client, cluster: str, text: str) -> tuple[str, str, int]:
    """Returns (team, name, number) of a version. Raises Refused for any other text, NotFound if there is no such model."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise Refused(
            f"{text} is no version of a model", hint="write NAME@VERSION, such as iris@3, or TEAM/NAME@VERSION"
        )
    name = found[2]
    team = found[1] or _team_of(api, cluster, name)
    if found[3] != "latest":
        return team, name, int(found[3])
    versions = [one.version for one in api.models.get(cluster, team, name).versions]
    if not versions:
        raise NotFound(f"model {name} has no version", hint=f"headway model show {team}/{name}")
    return team, name, max(versions)


def _team_of(api: Client, cluster: str, model: str) -> str:
    teams = [one.team for one in api.models.list(cluster) if one.name == model]
    if not teams:
        raise NotFound(f"{cluster} has no model {model}", hint="headway model ls")
    if len(teams) > 1:
        raise Refused(
            f"several teams have a model {model}", hint=f"give one of {', '.join(f'{t}/{model}' for t in teams)}"
        )
    return teams[0]


def _read_gates(file: Path) -> dict[str, Any]:
    from headway.sdk.cluster_file import read_text_file
    from headway.validation.yaml_parser import parse_yaml

    if not file.is_file():
        raise NotFound(f"{file}: no such file", hint="--gates FILE.yaml")
    return parse_yaml(read_text_file(file, "the gates file"), "the gates file")


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise NotFound(f"{file} can't be read: {error.strerror}") from None


def _compare(statement: dict[str, Any], folder: Path) -> None:
    """Raises Refused if a file of the folder is not as the statement says."""
    wanted = {str(one["name"]): str(one["digest"]["sha256"]) for one in statement["subject"]}
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    links = {name for name, path in paths.items() if path.is_symlink()}  # what they lead to can change
    there = {name for name, path in paths.items() if path.is_file()} - links
    faults = [f"{name} is a symbolic link; copy the file itself" for name in sorted(links)]
    faults += [f"{name} is missing" for name in sorted(wanted.keys() - there - links)]
    faults += [f"{name} is not in the manifest" for name in sorted(there - wanted.keys())]
    faults += [f"{name} differs" for name in sorted(wanted.keys() & there) if _sha256(folder / name) != wanted[name]]
    if faults:
        raise Refused("\n".join([f"{folder} is not the promoted model:", *(f"  {fault}" for fault in faults)]))


def _sha256(file: Path) -> str:
    import hashlib

    found = hashlib.sha256()
    with file.open("rb") as opened:
        while piece := opened.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def _statement_lines(statement: dict[str, Any], files: Path | None) -> list[str]:
    told = statement["predicate"]
    model, source = told["model"], told["source"]
    code = source["code"]
    lines = [
        "the signature is valid",
        f"model     {model['team']}/{model['name']}@{model['version']} on {model['cluster']}, promoted to {model['alias']}",
        f"promoted  by {told['person']}, {formatting.local_time(told['promoted_at'])}, promotion {told['promotion']}",
        f"job       {source['job'] or 'none of the cluster'}, run {source['run']}",
        f"code      {'commit ' + code['commit'] if code['commit'] else 'files ' + (code['files'] or 'not known')}",
        *(f"dataset   {one['name']}@{one['version']}  {one.get('sha256', '')}" for one in source["datasets"]),
        *(f"gate      {one['name']}: {one['wants']}; saw {one['saw']}" for one in told["gates"]),
    ]
    compared = "; those in the folder are the same" if files is not None else ""
    return [*lines, f"files     {len(statement['subject'])}{compared}"]


def _show(found: PromotionOut, output: Format) -> None:
    if output is Format.json:
        print_json(found)
        return
    named = f"{found.team}/{found.model}@{found.version} to {found.alias}"
    why = f": {found.why}" if found.why else ""
    common.print_line(f"{named}{f' ({found.id})' if found.id else ''}, asked by {found.person}: {found.state}{why}")
    if found.gates:
        columns = [
            tables.Column("GATE"), tables.Column("STATE"), tables.Column("WANTS", shrink=True, min_width=20),
            tables.Column("SAW", shrink=True, min_width=20), tables.Column("JOB", right=True),
        ]  # fmt: skip
        rows: list[list[tables.Cell]] = [
            [gate.name, _state(gate.state), gate.wants, gate.saw, str(gate.job_id or "")] for gate in found.gates
        ]
        tables.print_table(columns, rows)
    if found.former is not None and found.former != found.version:
        common.print_line(f"before, {found.alias} was {found.model}@{found.former}")
    if found.has_manifest:
        common.print_line(f"manifest: headway model manifest {found.id} > manifest.json")


def _state(state: str) -> tables.Cell:
    return [(state, _STYLES.get(state, ""))]


def _latest(model: ModelOut) -> str:
    return str(max((one.version for one in model.versions), default=""))


def _aliases(model: ModelOut) -> str:
    return ", ".join(f"{alias}: {number}" for alias, number in sorted(model.aliases.items()))


def _metrics(version: ModelVersionOut) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in version.metrics.items() if value is not None)


def _approvals(model: ModelOut, version: int) -> str:
    return ", ".join(f"{one.name}: {one.person}" for one in model.approvals if one.version == version)
