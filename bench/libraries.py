"""Compares Headway's own code with libraries that could replace it: a table of 5,000 jobs with rich, a cluster file with 3,000
users with ruamel.yaml. Prints the best of three runs each. ruamel.yaml is no dependency of Headway: install it first, or its
line is left out."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from importlib.util import find_spec

from rich.console import Console
from rich.table import Table

from headway.cli.output.tables import Column, table_lines
from headway.cli.output.terminal import Terminal
from headway.validation.yaml_parser import parse_yaml

ROWS, USERS, RUNS, WIDTH = 5_000, 3_000, 3, 100
TITLES = ("ID", "NAME", "USER", "TEAM", "PARTITION", "STATE", "NODES", "TIME")


def best_s(work: Callable[[], object]) -> float:
    """Returns the seconds of the fastest of RUNS calls."""
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def rich_table(rows: list[list[str]]) -> None:
    """Renders the rows with rich."""
    table = Table(box=None)
    for title in TITLES:
        table.add_column(title)
    for row in rows:
        table.add_row(*row)
    Console(file=io.StringIO(), width=WIDTH, force_terminal=True).print(table)


def main() -> None:
    rows = [[str(n), f"train-{n}", "ann", "vision", "train", "RUNNING", "lab-1-[1-4]", "1:02:03"] for n in range(ROWS)]
    columns = [Column(title, shrink=title == "NAME") for title in TITLES]
    ours = best_s(lambda: table_lines(columns, rows, Terminal(colours=True, width=WIDTH, unicode=True)))
    theirs = best_s(lambda: rich_table(rows))
    print(f"table of {ROWS} rows: headway {ours:.2f} s, rich {theirs:.2f} s, ratio {theirs / ours:.1f}")

    users = "".join(f"  user{n}: {{uid: {10_000 + n}, ssh_keys: ['ssh-ed25519 AAAA{n}']}}\n" for n in range(USERS))
    text = f"name: lab\nplan: h100-8\nnodes: 4\nusers:\n{users}"
    ours = best_s(lambda: parse_yaml(text))
    if find_spec("ruamel") is None:
        print(f"file with {USERS} users: headway {ours:.2f} s; ruamel.yaml is not installed")
        return
    from ruamel.yaml import YAML  # type: ignore[import-not-found, unused-ignore]

    theirs = best_s(lambda: YAML(typ="safe", pure=True).load(text))
    print(f"file with {USERS} users: headway {ours:.2f} s, ruamel.yaml {theirs:.2f} s, ratio {theirs / ours:.1f}")


if __name__ == "__main__":
    main()
