"""The `headway` command. Only the module of the called command is imported; `headway --help` imports none."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import typer
from typer.completion import get_completion_inspect_parameters, install_callback, show_callback

from headway.cli.command_group import LazyGroup
from headway.errors import HeadwayError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The parser's own classes are private to typer: this is the public way to its "wrong use" error.
UsageError: Any = typer.BadParameter.__base__


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="One YAML file becomes a Slurm GPU cluster on machines you own.",
)


@app.callback(invoke_without_command=True)
def _root(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    # Typer's own pair of options, as plain flags: its types would load pydantic for every command's help.
    install_completion: bool = typer.Option(  # noqa: ARG001
        False, "--install-completion", callback=install_callback, help="Install completion for this shell."
    ),
    show_completion: bool = typer.Option(  # noqa: ARG001
        False, "--show-completion", callback=show_callback, help="Print completion for this shell."
    ),
) -> None:
    if version:
        from headway import __version__

        typer.echo(f"headway {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main(argv: list[str]) -> int:
    """Runs one command line; returns the exit code (errors.py's for a HeadwayError, 2 for a usage error, 130 for ^C)."""
    try:
        get_completion_inspect_parameters()  # registers the shells for completion
        code = typer.main.get_command(app).main(args=argv, prog_name="headway", standalone_mode=False)
    except HeadwayError as error:
        print_error(error.message, error.hint)
        return error.exit_code
    except UsageError as error:
        return _report_usage_error(error)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        return _close_broken_pipe()
    except OSError as error:
        if error.errno in _DISK_FULL:
            return _report_write_error(error)
        if error.filename is None:
            return _report_bug()
        print_error(f"{error.filename}: {(error.strerror or str(error)).lower()}")
        return 1
    except Exception as error:
        return _invalid_request(error, argv) or _report_bug()
    return code if isinstance(code, int) else 0


def run() -> None:
    """Runs the `headway` program and exits."""
    _skip_slow_imports()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without UTF-8 shows a "?"
    code = main(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _close_broken_pipe()
    except OSError as error:
        code = _report_write_error(error)
    sys.exit(code)


def _skip_slow_imports() -> None:
    """Makes every command that asks the server start 80 ms earlier."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # httpx's own command, with pygments and rich
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # otherwise it looks for them in all packages


def print_error(message: str, hint: str = "") -> None:
    """Prints `error: message` and the hint on standard error. Control characters are removed, because both may
    contain text of other people."""
    from headway.cli.output.terminal import without_control_characters

    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    label = "\x1b[1;31merror:\x1b[0m" if coloured else "error:"
    sys.stdout.flush()
    shown = "\n".join(without_control_characters(line) for line in message.split("\n"))
    print(f"{label} {shown}", file=sys.stderr)  # noqa: T201
    if hint:
        print("\n".join(f"  {without_control_characters(line)}" for line in hint.splitlines()), file=sys.stderr)  # noqa: T201


def _report_usage_error(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: its help is the answer
        error.show()
        return 2
    message = error.format_message().rstrip(".").removeprefix("Invalid value: ")
    ctx = getattr(error, "ctx", None)
    print_error(message[:1].lower() + message[1:], f"{ctx.command_path} --help" if ctx else "headway --help")
    return 2


def _invalid_request(error: Exception, argv: list[str]) -> int:
    """Returns 2 and prints the faults of a request with invalid values; returns 0 for any other error."""
    from headway.cli.rejected_values import invalid_request_lines

    lines = invalid_request_lines(error, argv)
    if not lines:
        return 0
    message = lines[0] if len(lines) == 1 else "\n".join(["invalid values:", *(f"  {line}" for line in lines)])
    print_error(message, f"headway {argv[0]} --help")
    return 2


def _close_broken_pipe() -> int:
    """Ends quietly when the reader of a pipe has closed it, as in `headway queue | head`."""
    _discard_stdout()
    return 141


def _report_write_error(error: OSError) -> int:
    """Reports that standard output or a file can't be written, such as on a full disk."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()
    what = error.filename or "standard output"
    print_error(f"{what} can't be written: {(error.strerror or str(error)).lower()}")
    return 1


def _discard_stdout() -> None:
    """Sends buffered output to /dev/null, so that Python does not report it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_bug() -> int:
    """Reports an unexpected exception: one line, and a file with the traceback."""
    from headway.cli.crash_report import save_traceback

    error = sys.exc_info()[1]
    print_error(
        f"this is a bug in headway: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        f"details: {save_traceback()}",
    )
    return 70
