"""version: prints the versions of this client and of its server."""

from __future__ import annotations

from headway import __version__
from headway.cli import common
from headway.cli.output.output_formats import Format, Output, print_json
from headway.errors import HeadwayError, Unreachable
from headway.sdk.server_address import NO_SERVER


def version(output: Output = Format.table) -> None:
    """Print versions of this client and of the server in reach."""
    server: str | None = None
    server_text, failed = "none in reach", None
    try:
        api = common.connect()
        server_text = f"at {api.url}"
        server_text = server = api.server().version
    except Unreachable as error:
        server_text = "none in reach" + ("" if error.message == NO_SERVER else f": {error.message}")
    except HeadwayError as error:
        failed = error
    if output is Format.json:
        print_json({"client": __version__, "server": server})
    else:
        common.print_line(f"headway {__version__}")
        common.print_line(f"server  {server_text}")
    if failed is not None:  # there is one, which refuses us or which we can't read
        raise failed
