"""The `headway` command. Only the module of the called command is imported; `headway --help` imports none."""

from __future__ import annotations

import errno
import os
import sys
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.completion import get_completion_inspect_parameters, install_callback, show_callback
from typer.core import TyperCommand, TyperGroup

from headway.cli.registry import ENTRIES, EXAMPLE, THEMES, WORDS_AFTER_DASHES, Entry
from headway.errors import HeadwayError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The parser's own classes are private to typer: this is the public way to its "wrong use" error.
UsageError: Any = typer.BadParameter.__base__


class LazyCommand(TyperCommand):
    """A command whose usage line may come from the registry."""

    usage = ""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [self.usage] if self.usage else super().collect_usage_pieces(ctx)


class SplitCommand(LazyCommand):
    """A command whose options end at `--`; the words after it are in the context's meta (None without `--`)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest: list[str] | None = None
        if "--" in args:
            at = args.index("--")
            args, rest = args[:at], args[at + 1 :]
        ctx.meta[WORDS_AFTER_DASHES] = rest
        return super().parse_args(ctx, args)


class RawCommand(LazyCommand):
    """A command that parses all its words itself, except for a leading --help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] not in (["--help"], ["-h"]):
            args = ["--", *args]
        return super().parse_args(ctx, args)


COMMAND_CLASSES: dict[str, type[LazyCommand]] = {"": LazyCommand, "split": SplitCommand, "raw": RawCommand}


def load_command(entry: Entry) -> Any:
    """Returns the command, or group of commands, behind an entry; imports its module.

    `examples` of a command are the lines "headway ..." at the end of its docstring, which help prints in their own section."""
    module, _, attribute = entry.target.partition(":")
    found = getattr(import_module(f"headway.cli.commands.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
        command.name = entry.name
        for subcommand in command.commands.values():
            _prepare_help(subcommand)
        return command
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(entry.name, cls=COMMAND_CLASSES[entry.parsing])(found)
    command = typer.main.get_command(app)
    command.usage = entry.usage
    _prepare_help(command)
    return command


def _prepare_help(command: Any) -> None:
    """Prepares a command's help: USER instead of <str>, no meaningless defaults, and one example per line."""
    for param in command.params:
        if param.param_type_name == "argument":
            param.display_type_rich = lambda **_: ""
            if param.metavar:
                param.get_usage_pieces = partial(_usage_pieces, param)
            continue
        if not param.metavar and not param.type_descriptor.is_choice and not getattr(param, "is_flag", False):
            param.metavar = "NUMBER" if isinstance(param.default, int) else str(param.name).upper()
        if param.default in (0, True, False, ""):
            param.show_default = False
    text, _, last = (command.help or "").rpartition("\n\n")
    lines = [line.strip() for line in last.splitlines()]
    command.examples = lines if text and all(line.startswith("headway ") for line in lines) else []
    if command.examples:
        command.help = text
        command.format_epilog = partial(_format_examples, command.examples)


def _usage_pieces(param: Any, ctx: Any) -> list[str]:  # noqa: ARG001
    """Returns NAME for a required argument and [NAME] for an optional one."""
    metavar: str = param.metavar
    return [metavar if param.required or metavar.startswith("[") else f"[{metavar}]"]


def _format_examples(examples: list[str], ctx: Any, formatter: Any) -> None:  # noqa: ARG001
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class LazyGroup(TyperGroup):
    """A group whose names and one-line helps come from headway.cli.registry."""

    def get_help_option(self, ctx: Any) -> Any:
        """Returns the group's help option."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False  # None would be converted, with pydantic, on the way to each command's help
        return option

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(ENTRIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        entry = ENTRIES.get(cmd_name)
        return load_command(entry) if entry else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the called command. Fails with a suggestion for an unknown name."""
        name = args[0]
        if name not in ENTRIES and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, ENTRIES, n=1)
            ctx.fail(f"no such command: {name}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Writes the commands by theme, and an example."""
        width = max(map(len, ENTRIES))
        for theme, entries in THEMES:
            with formatter.section(theme):
                formatter.write_dl([(entry.name.ljust(width), entry.help) for entry in entries])
        with formatter.section("Example"):
            formatter.write_text(EXAMPLE)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Returns the completions of a command name or an option."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from typer._click.shell_completion import CompletionItem

        return [CompletionItem(e.name, help=e.help) for e in ENTRIES.values() if e.name.startswith(incomplete)]


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
    from headway.cli.usage_errors import invalid_request_lines

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
