"""version: of this client and of the server in reach."""

from __future__ import annotations

import json

from headway import __version__
from headway.cli import session
from headway.cli.session import Format, Output
from headway.errors import HeadwayError


def version(output: Output = Format.table) -> None:
    """Versions of this client and of the server, where there is one."""
    try:
        server: str | None = session.connect().server().version
    except HeadwayError:
        server = None
    if output is Format.json:
        session.say(json.dumps({"client": __version__, "server": server}))
        return
    session.say(f"headway {__version__}")
    session.say(f"server  {server or 'none in reach'}")
