"""A batch script taken apart: directives as sbatch reads them, and commands as the shell does.

The shell's grammar is not parsed in full. Here-documents are skipped, continued lines joined, and each line is cut into
simple commands at `;`, `&`, `|` and parentheses outside quotes. That is enough to see which programs a script starts,
with which arguments and variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from headway.domain.slurm.sbatch_options import Option, parse_options, script_head, script_lines

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_HEREDOC = re.compile(r"(?<!<)<<(?!<)(-?)\s*\\?(['\"]?)([A-Za-z_]\w*)\2")
_SEPARATORS = frozenset("();|&")
_KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "while", "until", "do", "!", "{", "time", "exec", "command", "nohup"}
)
# Words that begin or end a compound command; what follows them is no program.
_NO_PROGRAMS = frozenset({"fi", "done", "esac", "}", "for", "select", "case", "function", "]]"})
_SHELL = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?(?:\S*/)?(?:ba|da|a|z|k|mk)?sh(?:\s|$)")
_OPEN_ARRAY = re.compile(r"(?:^|\s)\w+\+?=\([^()]*$")
_MOST_JOINED = 400  # lines of one command
_ENV_OPTION = re.compile(r"-[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Directive:
    """An #SBATCH line that sbatch reads."""

    line: int
    text: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its program, arguments, and the variables that are set before it. `program` is "" where only
    variables are set."""

    line: int
    program: str
    arguments: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    in_background: bool = False
    is_piped: bool = False  # another program reads its output

    @property
    def words(self) -> tuple[str, ...]:
        """Returns program and arguments."""
        return (self.program, *self.arguments)

    @property
    def name(self) -> str:
        """Returns the program without its folder."""
        return self.program.rpartition("/")[2]

    @property
    def assigned(self) -> dict[str, str]:
        """Returns the variables that the command sets: before it, or as arguments of export."""
        if self.program not in ("export", "declare", "typeset", "readonly"):
            return self.variables
        pairs = (_ASSIGNMENT.fullmatch(word) for word in self.arguments)
        return self.variables | {pair[1]: pair[2] for pair in pairs if pair}


class BatchText:
    """A batch script. Line numbers count from 1. `flags`: options of sbatch's command line, which override those of the
    script."""

    def __init__(self, script: str, flags: Sequence[str] = ()) -> None:
        self.script, self.flags = script, tuple(parse_options(flags))
        lines = script.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        self.lines = lines
        self._heredocs: list[tuple[int, int]] = []
        self._comments: set[int] = set()
        self._ends: dict[int, int] = {}

    @cached_property
    def is_shell(self) -> bool:
        """Returns whether a shell of Bourne's grammar runs the script; also where the first line names no interpreter. Of
        other scripts, such as one in Python, only the directives are read."""
        first = self.lines[0] if self.lines else ""
        return not first.startswith("#!") or _SHELL.match(first) is not None

    @cached_property
    def head_lines(self) -> int:
        """Returns the number of lines before the first command, where sbatch stops reading."""
        return len(script_head(self.script))

    @cached_property
    def directives(self) -> list[Directive]:
        """Returns the #SBATCH lines that sbatch reads."""
        numbers = [number for number in range(1, self.head_lines + 1) if self.lines[number - 1].startswith("#SBATCH")]
        return [
            Directive(number, self.lines[number - 1], tuple(parse_options(words)))
            for number, words in zip(numbers, script_lines(self.script), strict=True)
        ]

    @cached_property
    def options(self) -> dict[str, tuple[int, str]]:
        """Returns line and value of each option by its long name; of a repeated option those of the last, which
        counts. Of a heterogeneous job all components are taken together."""
        given = {
            option.name: (directive.line, option.value) for directive in self.directives for option in directive.options
        }
        return given | {option.name: (self.last_directive, option.value) for option in self.flags}

    def has_line(self, name: str) -> bool:
        """Returns whether the value of an option comes from a line of the script, which can be corrected."""
        return name in self.options and all(option.name != name for option in self.flags)

    def value(self, *names: str) -> str | None:
        """Returns the value of the first of these options that is given, None if none is."""
        return next((self.options[name][1] for name in names if name in self.options), None)

    def line_of(self, *names: str) -> int:
        """Returns the line of the first of these options that is given; else of the last directive, else 1."""
        given = [self.options[name][0] for name in names if name in self.options]
        return given[0] if given else self.last_directive

    @property
    def last_directive(self) -> int:
        """Returns the line of the last directive, 1 if there is none."""
        return self.directives[-1].line if self.directives else 1

    @cached_property
    def body(self) -> list[tuple[int, str]]:
        """Returns the logical lines of commands with their first line number: without comments and here-documents,
        continued lines joined."""
        return list(self._logical_lines())

    @cached_property
    def commands(self) -> list[Command]:
        """Returns the simple commands of the script in order, also those in substitutions and functions."""
        if not self.is_shell:
            return []
        return [command for number, text in self.body for command in _simple_commands(number, text)]

    @cached_property
    def heredocs(self) -> list[tuple[int, int]]:
        """Returns the first and the last line of each here-document: the line of its command, and the line that ends
        it."""
        list(self._logical_lines())
        return self._heredocs

    @cached_property
    def comments(self) -> set[int]:
        """Returns the numbers of the lines after the first command that are comments: not text of a here-document, of a
        quoted word or of a continued line."""
        list(self._logical_lines())
        return self._comments

    def end_of(self, line: int) -> int:
        """Returns the last line of the command that begins at a line: it may be continued, or hold a quoted text of several
        lines."""
        list(self._logical_lines())
        return self._ends.get(line, line)

    @property
    def is_cut_off(self) -> bool:
        """Returns whether the script ends inside a here-document, a quote or a continued line."""
        last = self.heredocs[-1][1] if self.heredocs else 0
        text = self.body[-1][1] if self.body else ""
        return last > len(self.lines) or _continues(text) or _open_quote(text) or text.endswith("\n")

    def running(self, *names: str) -> list[Command]:
        """Returns the commands that start one of these programs, also through srun, env, python -m and the like."""
        return [command for command in self.commands if launched_program(command) in names]

    def _logical_lines(self) -> Iterator[tuple[int, str]]:
        ends: list[tuple[str, bool]] = []  # words that end the here-documents that are open
        text, began, opened = "", 0, 0
        self._heredocs, self._comments = [], set()
        for number, raw in enumerate(self.lines[self.head_lines :], start=self.head_lines + 1):
            line = raw.rstrip("\r")
            if ends and not text:
                word, tabs = ends[0]
                if (line.lstrip("\t") if tabs else line) == word:
                    ends.pop(0)
                    self._heredocs.append((opened, number))
                    opened = number
                continue
            if not text:
                if line.lstrip().startswith("#"):
                    self._comments.add(number)
                    continue
                if not line.strip():
                    continue
                began = number
            text += line
            if number - began < _MOST_JOINED and (_continues(text) or _open_quote(text) or _OPEN_ARRAY.search(text)):
                text = text[:-1] if _continues(text) else f"{text}\n"
                continue
            ends += [(found[3], bool(found[1])) for found in _HEREDOC.finditer(text)]
            opened = self._ends[began] = number
            yield began, text
            text = ""
        if text:
            yield began, text
        if ends:
            self._heredocs.append((opened, len(self.lines) + 1))


def launched_program(command: Command) -> str:
    """Returns the name of the program that a command starts in the end: `torchrun` of `srun -N2 torchrun train.py` and of
    `python -m torch.distributed.run train.py`."""
    words = list(command.words)
    while words:
        name = words[0].rpartition("/")[2]
        if name in ("srun", "mpirun", "mpiexec", "env", "nice", "numactl", "timeout", "stdbuf"):
            words = _after_options(words[1:], name)
        elif re.fullmatch(r"python[0-9.]*", name) and "-m" in words[:6]:
            module = words[words.index("-m") + 1 : words.index("-m") + 2]
            return {"torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun"}.get(
                "".join(module), "".join(module)
            )
        else:
            return name
    return ""


def launch_arguments(command: Command, program: str) -> tuple[str, ...]:
    """Returns the words after the named program in a command that starts it."""
    names = [word.rpartition("/")[2] for word in command.words]
    modules = ("torch.distributed.run", "torch.distributed.launch")
    at = next((at for at, name in enumerate(names) if name == program or name in modules), len(names))
    return command.words[at + 1 :]


def option_value(arguments: tuple[str, ...], *names: str) -> str | None:
    """Returns the value of a program's option, written `--name=value` or `--name value`; None if it is not given.
    Underscores and hyphens in names are taken as equal."""
    wanted = {name.replace("_", "-") for name in names}
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in wanted:
            return value if equals else next(iter(arguments[at + 1 : at + 2]), "")
    return None


def _after_options(words: list[str], program: str) -> list[str]:
    """Returns the words from the command that srun and its like start."""
    left = list(words)
    if program == "srun":
        found = parse_options(left)
        while left:
            if not left[0].startswith("-"):
                return left
            left = left[len(next(found).words) :] if not re.fullmatch(r"-[A-Za-z]{2,}", left[0]) else left[1:]
        return left
    if program == "timeout":
        while left and left[0].startswith("-"):
            left = left[2 if left[0] in ("-k", "-s") else 1 :]
        left = left[1:]  # the duration
    while left and (left[0].startswith("-") or _ASSIGNMENT.fullmatch(left[0])):
        takes = program in ("mpirun", "mpiexec") and left[0] in (
            "-n",
            "-np",
            "-N",
            "--map-by",
            "--bind-to",
            "-x",
            "--host",
        )
        left = left[2 if takes else 1 :]
    return left


def _simple_commands(number: int, text: str) -> Iterator[Command]:
    words: list[str] = []
    depth = 0  # of parentheses
    array = 0  # depth of the array whose values follow
    for word in [*_tokens(text), ";"]:
        if not word or not set(word) <= _SEPARATORS:
            words.append(word)
            continue
        is_function = word.startswith("()") and len(words) == 1
        is_value = bool(array) and depth == array
        depth += word.count("(") - word.count(")")
        is_pattern = depth < 0  # of case
        depth = max(depth, 0)
        if not array and words and word[0] == "(" and _ASSIGNMENT.fullmatch(words[-1]) and words[-1].endswith("="):
            array = depth
        array = 0 if depth < array else array
        command = None if is_function or is_pattern or is_value else _command(number, words, word)
        if command is not None:
            yield command
        words = []


def _command(number: int, words: list[str], separator: str) -> Command | None:
    left = list(words)
    while left and left[0] in _KEYWORDS:
        left.pop(0)
    variables: dict[str, str] = {}
    while left and (pair := _ASSIGNMENT.fullmatch(left[0])):
        variables[pair[1]] = pair[2]
        left.pop(0)
    if (not left and not variables) or (left and left[0] in _NO_PROGRAMS):
        return None
    program = left[0] if left else ""
    return Command(number, program, tuple(left[1:]), variables, separator == "&", separator in ("|", "|&"))


def _tokens(text: str) -> list[str]:
    """Returns words and separators of a line, up to a comment. Separators are tokens of only `();|&`."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();|&")
    lexer.whitespace_split, lexer.commenters = True, ""
    found: list[str] = []
    try:
        for token in lexer:
            if token.startswith("#"):
                break
            found.append(token)
    except ValueError:  # a quote that stays open
        return text.split()
    return _without_duplications(found)


def _without_duplications(tokens: list[str]) -> list[str]:
    """Returns the tokens without `2>&1`, `>&2` and `&>`, whose & separates no commands."""
    found: list[str] = []
    left = iter(range(len(tokens)))
    for at in left:
        following = tokens[at + 1] if at + 1 < len(tokens) else ""
        if tokens[at] == "&" and found and found[-1].endswith((">", "<")):
            found[-1] += f"&{following}"
            next(left, None)
        elif tokens[at] != "&" or not following.startswith(">"):
            found.append(tokens[at])
    return found


def _continues(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _open_quote(text: str) -> bool:
    """Returns whether a quote is open at the end of the text."""
    quote, at = "", 0
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (at == 0 or text[at - 1] in " \t;\n"):
            at = text.find("\n", at)
            if at < 0:
                return False
        at += 1
    return bool(quote)
