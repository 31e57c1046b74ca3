"""server: starts, stops and shows the Headway server of this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from headway import paths
from headway.cli import common
from headway.cli.exec_program import exec_program
from headway.cli.output import tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.errors import Refused, Unreachable

app = typer.Typer(
    help="Start, stop and inspect the Headway server.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


Cert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        resolve_path=True,
        help="TLS certificate (PEM); the server then uses HTTPS.",
    ),
]
Key = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        resolve_path=True,
        help="Private key of the TLS certificate (PEM).",
    ),
]


SelfSigned = Annotated[
    bool,
    typer.Option("--tls-self-signed", help="Use HTTPS with a certificate of the server's own; clients pin it."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Let other machines reach the server without TLS.")]


def _set_tls(cert: Path | None, key: Path | None, self_signed: bool, insecure: bool) -> None:
    """Passes the options to the server through its environment."""
    for name, file in (("HEADWAY_TLS_CERT", cert), ("HEADWAY_TLS_KEY", key)):
        if file is not None:
            os.environ[name] = str(file)
    for name, chosen in (("HEADWAY_TLS_SELF_SIGNED", self_signed), ("HEADWAY_INSECURE", insecure)):
        if chosen:
            os.environ[name] = "1"


@app.command()
def start(
    tls_cert: Cert = None, tls_key: Key = None, tls_self_signed: SelfSigned = False, insecure: Insecure = False
) -> None:
    """Start the server in the background, unless it is running."""
    from headway.sdk.local_server import running_server, start_server

    _set_tls(tls_cert, tls_key, tls_self_signed, insecure)
    already = running_server()
    server = already or start_server()
    common.print_line(
        f"the server {'is already running' if already else 'is running'} at {server.url} (process {server.pid})"
    )
    if server.fingerprint:
        common.print_note(f"on other machines: headway login {server.url} --fingerprint {server.fingerprint}")


@app.command()
def stop() -> None:
    """Stop the server. Clusters and jobs continue."""
    from headway.sdk.local_server import stop_server

    common.print_line("the server has stopped" if stop_server() else "no server is running")


@app.command()
def status(output: Output = Format.table) -> None:
    """Show the server's address, version and state. Exits with 7 when none answers."""
    server = common.connect().server()
    if output is Format.json:
        print_json(server)
        return
    pairs: list[tuple[str, tables.Cell]] = [
        ("url", server.url), ("version", server.version), ("process", str(server.pid)),
        ("state", server.state_dir), ("database", server.database), ("clusters", str(server.clusters)),
    ]  # fmt: skip
    if server.fingerprint:
        pairs.append(("fingerprint", server.fingerprint))
    if not server.leads:
        pairs.append(("part", "standby: another server of the database is active"))
    tables.print_facts(pairs)


@app.command()
def logs(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the log until ^C.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="Number of lines to print.")] = 50,
) -> None:
    """Print the server's log."""
    from headway.sdk.local_server import log_file

    log = log_file()
    if not log.exists():
        raise Unreachable(f"{log} does not exist", hint="headway server start")
    if follow:
        exec_program(["tail", "-n", str(lines), "-F", str(log)])
    for line in _last(log, lines):
        common.print_line(line)


def _last(log: Path, lines: int) -> list[str]:
    size = log.stat().st_size
    with log.open("rb") as source:
        source.seek(max(0, size - 400 * lines))
        return source.read().decode(errors="replace").splitlines()[-lines:]


@app.command("rotate-key")
def rotate_key(output: Output = Format.table) -> None:
    """Encrypt all secrets in the server's database with a new key. Clusters and jobs continue."""
    done = common.connect().rotate_server_key()
    if output is Format.json:
        print_json(done)
        return
    common.print_line(f"{done.secrets} secrets in the server's database are encrypted with a new key")
    common.print_note(f"copy {done.file} now; keep the former key for as long as you keep older copies of the database")


@app.command()
def run(
    tls_cert: Cert = None, tls_key: Key = None, tls_self_signed: SelfSigned = False, insecure: Insecure = False
) -> None:
    """Run the server in the foreground (for a service manager)."""
    from headway.sdk.local_server import running_server, server_argv

    _set_tls(tls_cert, tls_key, tls_self_signed, insecure)
    already = running_server()
    if already is not None:
        raise Refused(
            f"a server is already running at {already.url} (process {already.pid})", hint="headway server stop"
        )
    exec_program(server_argv())


# The server's settings in its environment. The database's URL may contain a password, and all users can read a unit file.
_SETTINGS = [
    f"HEADWAY_{name}"
    for name in (
        "HOST", "PORT", "NOTEBOOK_PORT", "NOTEBOOK_URL", "DATA", "DATASET_ROOTS", "PUBLIC_URL", "TLS_CERT", "TLS_KEY",
        "TLS_SELF_SIGNED", "INSECURE", "TRUSTED_PROXIES", "SUBMITS_PER_MINUTE",
        "OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET_FILE", "OIDC_ROLE_CLAIM", "OIDC_ROLES",
        "OIDC_TEAM_CLAIM", "OIDC_TEAMS",
        "OIDC_SUBJECT_CLAIM", "OIDC_USER_CLAIM", "OIDC_SCOPES",
    )
]  # fmt: skip
_ROOTS = "HEADWAY_DATASET_ROOTS"
_PATHS = [_ROOTS, *(f"HEADWAY_{name}" for name in ("DATA", "TLS_CERT", "TLS_KEY", "OIDC_CLIENT_SECRET_FILE"))]
_UNIT = """\
[Unit]
Description=Headway server
After=network-online.target
Wants=network-online.target

[Service]
{environment}
ExecStart={argv}
Restart=on-failure
RestartSec=2
# Machines and running operations outlive a restart of the server.
KillMode=process

[Install]
WantedBy={target}
"""


@app.command()
def install(
    show_only: Annotated[bool, typer.Option("--print", help="Print the unit, do not install it.")] = False,
    tls_cert: Cert = None,
    tls_key: Key = None,
    tls_self_signed: SelfSigned = False,
    insecure: Insecure = False,
) -> None:
    """Install a systemd unit that starts the server at boot, with the HEADWAY_* settings of this shell.

    For a user other than root: a user unit, which starts with the user's session."""
    from headway.sdk.local_server import server_argv

    _set_tls(tls_cert, tls_key, tls_self_signed, insecure)
    settings = {"HEADWAY_STATE": str(paths.state_dir())}
    settings |= {name: _for_a_unit(name, os.environ[name]) for name in _SETTINGS if os.environ.get(name)}
    root = os.geteuid() == 0
    text = _UNIT.format(
        environment="\n".join(f'Environment="{name}={_systemd_quote(text)}"' for name, text in settings.items()),
        argv=" ".join(f'"{_systemd_quote(word).replace("$", "$$")}"' for word in server_argv()),
        target="multi-user.target" if root else "default.target",
    )
    if show_only:
        sys.stdout.write(text)
        return
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    folder = Path("/etc/systemd/system") if root else config / "systemd/user"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "headway.service").write_text(text)
    systemctl = "systemctl" if root else "systemctl --user"
    common.print_line(f"wrote {folder / 'headway.service'}")
    common.print_line(f"  {systemctl} daemon-reload && {systemctl} enable --now headway")


def _for_a_unit(name: str, text: str) -> str:
    """A service starts in /, so that a path from this shell's folder on would be another one there."""
    if name not in _PATHS:
        return text
    parts = text.split(":") if name == _ROOTS else [text]
    return ":".join(str(Path(part).absolute()) for part in parts if part)


def _systemd_quote(text: str) -> str:
    """For a double-quoted word of a unit file, where % means something too (and $ only in a command)."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
