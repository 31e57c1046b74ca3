"""Options of sbatch: which ones take a value. Also splits words and #SBATCH lines as sbatch does."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

DOS_LINES_HINT = "convert it with dos2unix, or set your editor to LF"  # for a script with DOS line breaks
# Options of sbatch 22.05 to 24.11 and of Headway's plugin. Unknown options (of another plugin or a newer sbatch) are
# passed through unchanged.
SHORT_WITHOUT_VALUE = frozenset("hHkOQsuvVW")
SHORT_WITH_VALUE = frozenset("AabBcCDdeFGiJLmMnNopqStwx")
_LONG_WITHOUT_VALUE = """
contiguous help hold ignore-pbs no-requeue overcommit oversubscribe parsable quiet reboot requeue share
spread-job stepmgr test-only usage use-min-nodes verbose version wait
container-mount-home no-container-mount-home
"""
LONG_WITHOUT_VALUE = frozenset(_LONG_WITHOUT_VALUE.split())
LONG_WITH_OPTIONAL_VALUE = frozenset(
    {"exclusive", "get-user-env", "nice", "no-kill", "oom-kill-step", "propagate", "resv-ports"}
)  # the value must be given as --flag=value
_LONG_WITH_VALUE = """
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container
container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency
distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node
gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type
mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile nodelist nodes ntasks
ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output partition power prefer
priority profile qos reservation resv segment signal sockets-per-node switches thread-spec threads-per-core time
time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap
container-image container-mounts container-name container-workdir secret
"""
LONG_WITH_VALUE = frozenset(_LONG_WITH_VALUE.split())
_ALIASES = {"tasks-per-node": "ntasks-per-node"}
LONG = LONG_WITHOUT_VALUE | LONG_WITH_OPTIONAL_VALUE | LONG_WITH_VALUE
_LETTERS = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "h": "help", "i": "input",
    "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks",
    "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec", "s": "oversubscribe",
    "t": "time", "u": "usage", "V": "version", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
# One word of an #SBATCH line with its quotes and the blanks after it; a # starts a comment.
_WORD = re.compile(r"""((?:"[^"]*"|'[^']*'|\\.|[^\s#])+)\s*""")


@dataclass(frozen=True, slots=True)
class Option:
    """One option by its long name, with the words as typed. `name` is "" for a word that is not a known option."""

    name: str
    value: str
    words: tuple[str, ...]


def parse_options(words: Iterable[str]) -> Iterator[Option]:
    """Yields the options among the words. Combined letters (`-HW`) are yielded one by one."""
    left = deque(words)
    while left:
        word = left.popleft()
        if word.startswith("--"):
            typed, equals, value = word[2:].partition("=")
            name = full_name(typed)
            if equals or name not in LONG_WITH_VALUE or not left:
                yield Option(name, _bare(value), (word,))
            else:
                value = left.popleft()
                yield Option(name, _bare(value), (word, value))
        elif word.startswith("-") and len(word) > 1:
            yield from _short(word, left)
        else:
            yield Option("", "", (word,))


def _short(word: str, left: deque[str]) -> Iterator[Option]:
    for at, letter in enumerate(word[1:], start=1):
        name = _LETTERS.get(letter, "")
        if letter in SHORT_WITHOUT_VALUE:
            yield Option(name, "", (f"-{letter}",))
            continue
        rest = word[at + 1 :]
        if letter in SHORT_WITH_VALUE and not rest and left:
            value = left.popleft()
            yield Option(name, _bare(value), (f"-{letter}", value))
        else:
            yield Option(name, _bare(rest), (f"-{letter}{rest}",))
        return


def remove_options(words: Sequence[str], names: Collection[str]) -> list[str]:
    """Returns the words without these options and their values; words are unchanged if none of the options occurs."""
    found = list(parse_options(words))
    if not any(option.name in names for option in found):
        return list(words)
    return [word for option in found if option.name not in names for word in option.words]


def script_options(script: str) -> list[Option]:
    """Returns the options of all #SBATCH lines of the script."""
    return [option for words in script_lines(script) for option in parse_options(words)]


def script_lines(script: str) -> list[list[str]]:
    """Returns the words of each #SBATCH line of the script, with their quotes."""
    return [_words(line)[0] for line in script_head(script) if line.startswith(_SIGN)]


def remove_script_options(script: str, names: Collection[str]) -> str:
    """Returns the script without these options in its #SBATCH lines. A line that had no other option is removed."""
    head = script_head(script)
    kept = []
    for line in head:
        if line.startswith(_SIGN):
            words, comment = _words(line)
            rest = remove_options(words, names)
            if rest != words:
                line = "".join((" ".join([_SIGN, *rest, *comment]), _end(line))) if rest else ""
        kept.append(line)
    return "".join(kept) + script[sum(map(len, head)) :]


_SIGN = "#SBATCH"


def script_head(script: str) -> list[str]:
    """Returns the lines, with their line ends, before the first command, where sbatch stops reading. Comments may be
    indented, #SBATCH lines may not."""
    found = []
    for line in re.findall(r"[^\n]*\n|[^\n]+", script):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        found.append(line)
    return found


def _words(line: str) -> tuple[list[str], list[str]]:
    """Returns the words of an #SBATCH line with their quotes, and its comment as a list of at most one."""
    text, words, at = line.removeprefix(_SIGN).strip(), list[str](), 0
    while word := _WORD.match(text, at):
        words.append(word[1])
        at = word.end()
    return words, [text[at:]] if at < len(text) else []


def _end(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _bare(value: str) -> str:
    return value.removeprefix("=").strip("\"'")


def full_name(typed: str, known: Collection[str] = LONG) -> str:
    """Returns the full name of a long option, which may be shortened while it stays unambiguous (`--part` is
    `--partition`); otherwise the text as typed."""
    if typed in known:
        return typed
    near = [name for name in (*known, *_ALIASES) if name.startswith(typed)]
    return _ALIASES.get(near[0], near[0]) if len(near) == 1 and typed else typed
