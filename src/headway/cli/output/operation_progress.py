"""Follows an operation to its end: a live list of steps on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from headway.cli import common
from headway.cli.output.terminal import detect_terminal, without_control_characters
from headway.domain.operation_kinds import OperationKind
from headway.errors import HeadwayError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.schemas.operations import EventOut, OperationOut
    from headway.sdk.client import Client

STEP_WIDTH = 14


def follow_operation(
    api: Client, operation: OperationOut, *, quiet: bool = False, on_lost: Callable[[], None] | None = None
) -> OperationOut:
    """Prints the operation's steps until it ends and returns its final state. Raises the error that it failed with.

    ^C leaves it running on the server, prints how to follow it again and exits with 130."""
    terminal = detect_terminal()
    view: _Plain | _Live | _Quiet
    if quiet:
        view = _Quiet()
    elif terminal.width is not None and terminal.colours:
        view = _Live()
    else:
        view = _Plain(operation.created_at)
    try:
        with view:
            for event in api.operations.events(operation.id, on_lost=on_lost):
                view.event(event)
    except KeyboardInterrupt:
        name = operation.cluster
        common.print_note(
            f"\nthe {operation.kind} of {name} continues on the server; "
            f"follow it again: headway apply --follow {operation.id}"
        )
        if operation.kind is OperationKind.APPLY:
            common.print_note(f"  undo it: headway down {name}; pause it: headway server stop")
        raise typer.Exit(130) from None
    final = api.operations.get(operation.id)
    if final.state == "failed":
        raise _error(final)
    return final


def follow_to_end(
    api: Client, operation: OperationOut, *, quiet: bool, on_lost: Callable[[], None] | None = None
) -> OperationOut:
    """Follows an operation like `follow_operation`; if it yielded to another one, also follows the operation that
    continues it."""
    final = follow_operation(api, operation, quiet=quiet, on_lost=on_lost)
    while final.kept and final.kind.may_continue:
        if not quiet:
            common.print_note(f"it continues as operation {final.kept[0]}")
        final = follow_operation(api, api.operations.get(final.kept[0]), quiet=quiet, on_lost=on_lost)
    return final


def _error(operation: OperationOut) -> HeadwayError:
    from headway.sdk.errors import error_from_answer

    if operation.error is None:
        return Refused(f"the {operation.kind} of {operation.cluster} failed", hint="headway server logs")
    return error_from_answer(operation.error)


class _Quiet:
    """Prints nothing: the output is for a program."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def event(self, event: EventOut) -> None: ...


def _line(event: EventOut) -> str:
    """Returns the event's first line; an error is printed in full at the end."""
    return without_control_characters(event.text.partition("\n")[0])


class _Plain(_Quiet):
    """Lines such as `  12.3s  lab-1-2         slurmd is up`: seconds since the operation was requested."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at

    def event(self, event: EventOut) -> None:
        mark = "" if event.level == "info" else f"{event.level}: "
        since = max(0.0, event.at - self._started_at)
        common.print_line(f"{since:7.1f}s  {event.step:<{STEP_WIDTH}}  {mark}{_line(event)}")


class _Live(_Quiet):
    """Open steps with a spinner and their seconds at the bottom, finished ones above."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._open: dict[str, _Step] = {}
        self._console = Console(highlight=False)
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=10, transient=True)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def event(self, event: EventOut) -> None:
        text = _line(event)
        if event.done or event.level != "info":
            self._keep(event, text)
        if event.done:
            self._open.pop(event.step, None)
        else:
            self._open.setdefault(event.step, _Step(event.step)).text = text

    def _keep(self, event: EventOut, text: str) -> None:
        from rich.text import Text

        mark, style = {"info": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "bold red")}[event.level]
        line = Text.assemble((f"{mark} ", style), (f"{event.step:<{STEP_WIDTH}}", "bold"), "  ", text)
        if event.seconds is not None:
            line.append(f"  {event.seconds:.1f}s", style="dim")
        self._console.print(line, overflow="ellipsis", no_wrap=True)

    def _render(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        room = max(3, self._console.height - 4)
        lines = [step.line() for step in list(self._open.values())[:room]]
        if len(self._open) > room:
            lines.append(Text(f"  and {len(self._open) - room} more", style="dim"))
        return Group(*lines)


class _Step:
    """An open step, with one spinner for its whole duration: a new one would restart its animation."""

    def __init__(self, name: str) -> None:
        from rich.spinner import Spinner

        self.text = ""
        self._name = name
        self._since = time.monotonic()
        self._spinner = Spinner("dots", style="cyan")

    def line(self) -> Any:
        from rich.text import Text

        text = Text(overflow="ellipsis", no_wrap=True)
        text.append(f"{self._name:<{STEP_WIDTH}}", style="bold").append(f"  {self.text}")
        self._spinner.update(text=text.append(f"  {time.monotonic() - self._since:.0f}s", style="dim"))
        return self._spinner
