"""login: stores the address of a server, a token and the pinned certificate for the commands on this machine."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from headway.cli import common
from headway.errors import Refused


def login(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The server's address, such as https://hpc.example.org:7878.")
    ],
    fingerprint: Annotated[
        str,
        typer.Option("--fingerprint", metavar="SHA256:...", help="Accept only the certificate with this fingerprint."),
    ] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Send the token without TLS to another machine.")
    ] = False,
) -> None:
    """Use a server on another machine from now on. Reads a token from HEADWAY_TOKEN, the terminal or standard input.

    Without --fingerprint a certificate that no known authority signed is shown, to be compared and accepted.

    headway login https://hpc.example.org:7878 --fingerprint SHA256:..."""
    from headway.sdk import server_address
    from headway.sdk.client import Client

    url = (url if "://" in url else f"https://{url}").rstrip("/")
    server_address.check_address(url, "", "URL")
    if not url.startswith("https://"):
        _refuse_plain(url, fingerprint, insecure)
    pin = server_address.valid_fingerprint(fingerprint, "--fingerprint") if fingerprint else _accepted_pin(url)
    token = _read_token()
    server_address.check_address(url, token, "URL")
    with Client(url, token, fingerprint=pin) as api:
        me = api.me()
    before = server_address.pin_of_login(url)
    file = server_address.write_client_file(url, token, pin)
    common.print_line(f"signed in at {url} as {me.person} ({me.role})")
    common.print_note(f"{file} holds the token" + (f" and the pinned certificate {pin}" if pin else ""))
    if before and before != pin:
        common.print_note(
            f"the certificate {before} is no longer pinned"
            + ("" if pin else ": the server's certificate is verified by the authority that signed it")
        )
    used = server_address.find_server()[0]
    if used != url:
        common.print_note(
            f"commands here still use {used}, which comes first: HEADWAY_URL, or the server of this machine"
        )


def _refuse_plain(url: str, fingerprint: str, insecure: bool) -> None:
    from urllib.parse import urlsplit

    from headway.validation.hosts import is_loopback

    if fingerprint:
        raise Refused(f"{url} is without TLS, so it shows no certificate", hint=f"headway login https://{url[7:]}")
    if not (insecure or is_loopback(urlsplit(url).hostname or "")):
        raise Refused(
            f"the token would be sent to {url} without TLS, readable on the network",
            hint=f"headway login https://{url[7:]}; --insecure sends it",
        )


def _accepted_pin(url: str) -> str:
    """Returns "" if a known authority signed the server's certificate, else its fingerprint after the person accepted
    it. Raises Refused without a terminal or a yes."""
    if not url.startswith("https://"):
        return ""
    from headway.sdk.tls_trust import presented_fingerprint

    shown, fault = presented_fingerprint(url)
    if not fault:
        return ""
    compare = "compare it with `headway server status` on the server's machine"
    if not sys.stdin.isatty():
        raise Refused(
            f"the certificate of {url} can't be verified ({fault}); its fingerprint is {shown}",
            hint=f"{compare}, then: headway login {url} --fingerprint {shown}",
        )
    common.print_note(f"The certificate of {url} can't be verified: {fault}.")
    common.print_note(f"Its fingerprint is {shown}; {compare}.")
    if not typer.confirm("Is it the same?", err=True):
        raise Refused("the certificate was not accepted", hint="nothing was sent or stored")
    return shown


def _read_token() -> str:
    token = os.environ.get("HEADWAY_TOKEN", "")
    if not token and sys.stdin.isatty():
        token = str(typer.prompt("Token", hide_input=True, err=True))
    token = (token or sys.stdin.readline()).strip()
    if not token:
        raise Refused(
            "no token was given", hint="HEADWAY_TOKEN; create one on the server's machine: headway token create"
        )
    return token
