"""serve up|show|ls|metrics|logs|scale|stop|key: HTTP servers as jobs, behind one address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterOption
from headway.cli.output import tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.errors import NotFound

if TYPE_CHECKING:
    from headway.schemas.serving.service_metrics import ServiceRates
    from headway.schemas.serving.services import ReplicaOut, ServiceOut

app = typer.Typer(
    help="Run HTTP servers as jobs, behind one address.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
keys = typer.Typer(
    help="Manage the keys of a service.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)
app.add_typer(keys, name="key")
Which = Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service, or TEAM/NAME.")]
_STYLES = {
    "running": "good",
    "serving": "good",
    "standby": "good",
    "unhealthy": "bad",
    "ended": "dim",
    "stopped": "dim",
}
_EVENTS = 8  # that are shown, the latest
_ENDED = 3  # ended replicas that are shown, the latest


@app.command("up")
def up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Service file (YAML).")],
    cluster: ClusterOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the batch script of a replica; start nothing.")
    ] = False,
    no_files: Annotated[bool, typer.Option("--no-files", help="Do not upload the file's folder.")] = False,
    user: Annotated[str, typer.Option("--as", help="Submit as this user (admins only).")] = "",
    output: Output = Format.table,
) -> None:
    """Start a service, or move the running one of this name to the file's new version, without dropping a request.

    headway serve up service.yaml --dry-run"""
    from headway.schemas.serving.services import ServiceIn
    from headway.sdk.cluster_file import read_text_file
    from headway.validation.yaml_parser import parse_yaml

    if not file.is_file():
        raise NotFound(f"{file}: no such file", hint="headway serve up FILE.yaml")
    document = parse_yaml(read_text_file(file, "the service file"), "the service file")
    api = common.connect()
    name = common.choose_cluster(api, cluster)
    digest, git = "", None
    if not no_files and not dry_run:
        from headway.sdk.submission import send_files

        digest, git = send_files(api.bundles, name, file.resolve().parent, user=user)
    request = ServiceIn(document=document, bundle=digest, git=git, user=user, dry_run=dry_run)
    found = api.services.start(name, request)
    if found.warning:
        common.print_note(f"warning: {found.warning}")
    if output is Format.json:
        print_json(found)
        return
    if dry_run:
        for line in found.script:
            common.print_line(f"{line.text:<48} # {line.origin}" if line.origin else line.text)
        return
    _show(found)
    common.print_note(f"follow it: headway serve show {found.name}; make a key: headway serve key create {found.name}")


@app.command("show")
def show_one(service: Which, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Show a service: address, requests and replicas."""
    api = common.connect()
    found = api.services.get(common.choose_cluster(api, cluster), _address(service))
    if output is Format.json:
        print_json(found)
    else:
        _show(found)


@app.command("ls")
def ls(cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """List services that have not ended."""
    api = common.connect()
    found = api.services.list(common.choose_cluster(api, cluster))
    if output is Format.json:
        print_json(found)
        return
    columns = [
        tables.Column("TEAM"), tables.Column("NAME"), tables.Column("USER"), tables.Column("STATE"),
        tables.Column("HEALTHY", right=True), tables.Column("ACTIVE", right=True),
        tables.Column("REQUESTS", right=True), tables.Column("URL", drop_order=1),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = [
        [
            s.team,
            s.name,
            s.user,
            _state(s.state),
            f"{s.healthy}/{s.wanted}",
            f"{s.active:,}",
            f"{s.requests:,}",
            s.url,
        ]
        for s in found
    ]
    tables.print_table(columns, rows)


@app.command("metrics")
def metrics(
    service: Which,
    cluster: ClusterOption = None,
    minutes: Annotated[
        int, typer.Option("--minutes", metavar="NUMBER", min=1, help="Minutes to look back, at most a week.")
    ] = 60,
    output: Output = Format.table,
) -> None:
    """Show requests, errors, times, tokens and cost of a service, by version.

    headway serve metrics chat --minutes 1440"""
    api = common.connect()
    found = api.services.metrics(common.choose_cluster(api, cluster), _address(service), minutes)
    if output is Format.json:
        print_json(found)
        return
    columns = [
        tables.Column("VERSION"), tables.Column("REQUESTS", right=True), tables.Column("PER S", right=True),
        tables.Column("ERRORS", right=True), tables.Column("P50 MS", right=True), tables.Column("P95 MS", right=True),
        tables.Column("P99 MS", right=True), tables.Column("FIRST TOKEN P95 MS", right=True, drop_order=1),
        tables.Column("TOKENS/S", right=True),
    ]  # fmt: skip
    lines = [_rates_line("all", found.all)]
    if len(found.versions) > 1:
        lines += [_rates_line(str(version), one) for version, one in sorted(found.versions.items())]
    tables.print_table(columns, lines)
    common.print_line(f"tokens: {found.all.prompt_tokens:,} of prompts, {found.all.generated_tokens:,} generated")
    if found.usd is not None:
        each = found.usd_per_million_tokens
        per_million = "" if each is None else f", {each:,.2f} USD per million tokens"
        common.print_line(f"cost of the replicas' jobs: {found.usd:,.2f} USD{per_million}")


def _rates_line(version: str, rates: ServiceRates) -> list[tables.Cell]:
    times = rates.latency_ms
    first = rates.first_token_ms
    return [
        version,
        f"{rates.requests:,}",
        f"{rates.requests_per_s:,.2f}",
        f"{100 * rates.error_rate:.1f} %",
        *((f"{ms:,.0f}" for ms in (times.p50, times.p95, times.p99)) if times else ("-", "-", "-")),
        f"{first.p95:,.0f}" if first else "-",
        f"{rates.tokens_per_s:,.1f}" if rates.generated_tokens else "-",
    ]


@app.command("logs")
def logs(
    service: Which,
    cluster: ClusterOption = None,
    replica: Annotated[
        int | None,
        typer.Option("--replica", metavar="NUMBER", help="Number of the replica (default: the latest with a job)."),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the output until the replica ends.")] = False,
) -> None:
    """Print the output of a replica."""
    from headway.cli.commands.jobs.logs import logs as job_logs

    api = common.connect()
    name = common.choose_cluster(api, cluster)
    found = api.services.get(name, _address(service))
    fitting = [one for one in found.replicas if one.job_id and replica in (None, one.number)]
    if not fitting:
        raise NotFound(
            f"service {found.name} has no replica{'' if replica is None else f' {replica}'} with a job",
            hint=f"headway serve show {found.name}",
        )
    job_logs([name, str(fitting[-1].job_id)], follow=follow)


@app.command("scale")
def scale(
    service: Which,
    replicas: Annotated[int, typer.Argument(metavar="NUMBER", help="Number of replicas, or the smallest with --max.")],
    most: Annotated[
        int | None, typer.Option("--max", metavar="NUMBER", help="Largest number of replicas while many requests wait.")
    ] = None,
    cluster: ClusterOption = None,
    output: Output = Format.table,
) -> None:
    """Change the number of replicas, until the file is given again.

    headway serve scale chat 2 --max 6"""
    api = common.connect()
    found = api.services.scale(
        common.choose_cluster(api, cluster), _address(service), replicas, max(replicas, 1) if most is None else most
    )
    if output is Format.json:
        print_json(found)
    else:
        _show(found)


@app.command("stop")
def stop(service: Which, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """Stop a service: its replicas finish their requests and end.

    headway serve stop chat"""
    api = common.connect()
    found = api.services.stop(common.choose_cluster(api, cluster), _address(service))
    if output is Format.json:
        print_json(found)
    else:
        _show(found)


@keys.command("create")
def create_key(
    service: Which,
    cluster: ClusterOption = None,
    label: Annotated[str, typer.Option("--label", metavar="TEXT", help="Who or what uses the key.")] = "",
    per_minute: Annotated[
        int | None, typer.Option("--per-minute", metavar="NUMBER", help="Largest number of requests a minute.")
    ] = None,
    output: Output = Format.table,
) -> None:
    """Make a key that opens the service, and print it. It can't be shown again."""
    api = common.connect()
    made = api.services.create_key(common.choose_cluster(api, cluster), _address(service), label, per_minute)
    if output is Format.json:
        print_json(made)
    else:
        common.print_line(made.key)


@keys.command("ls")
def list_keys(service: Which, cluster: ClusterOption = None, output: Output = Format.table) -> None:
    """List the keys of a service."""
    from headway.cli.output import formatting

    api = common.connect()
    found = api.services.keys(common.choose_cluster(api, cluster), _address(service))
    if output is Format.json:
        print_json(found)
        return
    columns = [
        tables.Column("ID"),
        tables.Column("LABEL"),
        tables.Column("PERSON"),
        tables.Column("CREATED"),
        tables.Column("PER-MINUTE", right=True),
    ]
    tables.print_table(
        columns,
        [
            [
                key.id,
                key.label,
                key.person,
                formatting.local_time(key.created_at),
                f"{key.per_minute:,}" if key.per_minute else "",
            ]
            for key in found
        ],
    )


@keys.command("revoke")
def revoke_key(
    service: Which,
    key: Annotated[str, typer.Argument(metavar="KEY-ID", help="Id of the key, from headway serve key ls.")],
    cluster: ClusterOption = None,
) -> None:
    """Revoke a key. The service refuses it within seconds; requests that run are finished."""
    api = common.connect()
    api.services.revoke_key(common.choose_cluster(api, cluster), _address(service), key)
    common.print_note(f"key {key} is revoked")


def _address(service: str) -> str:
    """Returns the service as the API takes it: TEAM:NAME for TEAM/NAME."""
    return service.replace("/", ":")


def _show(found: ServiceOut) -> None:
    why = f" ({found.why})" if found.why else ""
    common.print_line(f"{found.team}/{found.name} on {found.cluster} as {found.user}: {found.state}{why}")
    if found.url:
        common.print_line(found.url)
    limits = f"{found.min}" if found.min == found.max else f"{found.min} to {found.max}"
    common.print_line(f"version {found.version}; {found.healthy} of {found.wanted} replicas healthy (limits: {limits})")
    if found.standby:
        ready = sum(one.state == "standby" for one in found.replicas)
        common.print_line(f"{ready} of {found.standby} replicas on standby are ready")
    if found.requests or found.active:
        common.print_line(
            f"{found.requests:,} requests, {found.active:,} active, {found.errors_4xx:,} with status 4xx, "
            f"{found.errors_5xx:,} with 5xx, {found.retries:,} retried; first byte after {found.first_byte_ms:,} ms, "
            f"complete after {found.total_ms:,} ms (means)"
        )
    ended = [one for one in found.replicas if one.ended_at is not None][-_ENDED:]
    shown = [*ended, *(one for one in found.replicas if one.ended_at is None)]
    if shown:
        _print_replicas(shown)
    if found.events:
        from headway.cli.output import formatting

        columns = [tables.Column("AT"), tables.Column("EVENT", shrink=True, min_width=20)]
        tables.print_table(columns, [[formatting.local_time(one.at), one.text] for one in found.events[:_EVENTS]])


def _print_replicas(replicas: list[ReplicaOut]) -> None:
    columns = [
        tables.Column("REPLICA", right=True), tables.Column("VERSION", right=True), tables.Column("STATE"),
        tables.Column("JOB", right=True), tables.Column("NODE"), tables.Column("PORT", right=True, drop_order=2),
        tables.Column("ACTIVE", right=True), tables.Column("REQUESTS", right=True),
        tables.Column("WHY", shrink=True, min_width=20, drop_order=1),
    ]  # fmt: skip
    tables.print_table(columns, [_row(one) for one in replicas])


def _row(one: ReplicaOut) -> list[tables.Cell]:
    state: tables.Cell = [("failed", "bad")] if one.failed and one.ended_at is not None else _state(one.state)
    return [
        f"{one.number}", f"{one.version}", state, str(one.job_id or ""), one.node, str(one.port),
        f"{one.sessions:,}", f"{one.requests:,}", one.why,
    ]  # fmt: skip


def _state(state: str) -> tables.Cell:
    return [(state, _STYLES.get(state, "warn"))]
