"""The commands of `headway`: found by name with a suggestion for a wrong one, imported when called, listed by theme in the
help."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from headway.cli.registry import ENTRIES, EXAMPLE, THEMES, WORDS_AFTER_DASHES, CommandEntry


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


def load_command(entry: CommandEntry) -> Any:
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
