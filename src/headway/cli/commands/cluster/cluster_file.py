"""init and schema: write a cluster file, and print its JSON Schema. No server is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headway.cli import common
from headway.cli.output.output_formats import print_json
from headway.errors import Refused


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Cluster name.")] = "lab",
    file: Annotated[Path, typer.Option("--file", "-f", help="File to write; - for standard output.")] = Path(
        "cluster.yaml"
    ),
) -> None:
    """Write a commented cluster.yaml to start from. Never overwrite a file."""
    from headway.clusterfile.starter_file import starting_file

    text = starting_file(name)
    if str(file) == "-":
        sys.stdout.write(text)
        return
    try:
        with file.open("x") as out:
            out.write(text)
    except FileExistsError:
        raise Refused(f"{file} already exists", hint="give another file with --file, or --file - to print") from None
    common.print_line(f"wrote {file}")
    common.print_line(f"  edit it, then: headway apply {file}")


def schema() -> None:
    """Print the JSON Schema of cluster.yaml, for editors and checks."""
    from headway.clusterfile.json_schema import cluster_file_schema as json_schema

    print_json(json_schema())
