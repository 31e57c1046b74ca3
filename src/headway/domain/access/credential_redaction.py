"""Detects names whose values are secrets, and masks such values in texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

MASK = "********"
# `export NAME=`, `--name=`, `--name VALUE`; one after the other in `--export=ALL,NAME=VALUE`.
_NAMED = re.compile(
    r"(?<![\w.-])(?:(?P<option>--?[A-Za-z][\w.-]*)(?:=|[ \t]+(?:\\\n[ \t]*)?(?!-))|(?P<name>[A-Za-z_][\w.-]*)=(?!=))"
)
_QUOTED = r""""[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^']*+'"""
# With possessive quantifiers each character is read once, for any text. An unclosed quote or bracket ends with its
# line.
_VALUE = re.compile(
    rf"""(?:{_QUOTED}|\$\{{[^}}\n]*+\}}?|\$\([^)\n]*+\)?|`[^`\n]*+`|\\.|[^\s;&|"'\\()`<>$]++|\$|["'][^\n]*+)++""",
    re.DOTALL,
)
_REFERENCE = re.compile(
    r'"?(?:\$\w+|\$[@*#?$!]|\$\{\w+(?::?[-+?])?\}|\$\([^)\n]*+\)|`[^`\n]*+`)++"?'
    r"|\$\([^)\n]*+"  # continues in the next line
)
_NO_SECRETS = frozenset({"true", "false", "none", "null", "yes", "no", "0", "1"})  # values of switches
_DEEPEST = 8  # $(A_KEY=$(B_TOKEN=...)): how deep references are searched; anything deeper is a secret
_OPTION = re.compile(r"(--?[A-Za-z][\w.-]*|[A-Za-z_]\w*)=(.+)", re.DOTALL)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Names are checked word by word: DB_PASSWORD, apiKey, --hf-token.
_ALWAYS = re.compile(
    r".*secrets?|credentials?|authorization|passcode|jwt|sshpass|.*(?:password|passwd|passphrase)s?"
    r"|.*(?:api|access|secret|private|account|auth|encryption|signing)(?:key|token)s?"
)
# Ignored at the end of a name.
_LEFT_OUT = _set("value string header plain raw base64 prod production staging dev test old ro rw readonly")
# At the beginning of a name: a switch, not a secret.
_SWITCHES = _set("use no enable disable skip require with is has")
# At the end of a name: the value describes a secret, or says where it is.
_ABOUT = _set("file files path dir folder name names arn type len length limit count policy ttl age expiry manager store "
              "provider helper backend prompt")  # fmt: skip
_KEYS = _set("api access private secret account ssh auth encryption signing license deploy master")
_OTHER_KEYS = _set(
    "public pub primary sort foreign partition cache text image images label labels json data input inputs output outputs "
    "target dict group metric index lookup row column field id loss reward prompt response answer question audio video "
    "caption message messages shard train val eval batch split order map monitor best score state model content feature "
    "features step time timestamp query value attention attn num max min per"
)
# Before "token": a token of text, as in trainings.
_OTHER_TOKENS = _set(
    "pad padding eos bos unk sep cls mask sos eot eod eom fim prefix suffix middle special start stop end begin first last "
    "next prev current each every by per max min num single extra image video audio vision text speech speaker language "
    "prompt response think thinking reasoning tool turn query memory register blank separator delimiter boundary newline "
    "placeholder latent class sentinel dummy trigger instance concept initializer document lm word sub"
)
# Before "tokens": several secrets.
_TOKENS = _set("api auth access refresh bearer hf github gitlab gh slack huggingface wandb npm pypi bot session")
_PASSES = _set(
    "db database user smtp mysql postgres pg redis admin root ftp http proxy mongo registry docker login mail"
)
_PATS = _set("github gitlab gh azure ado devops")


def is_secret(name: str) -> bool:
    """Returns whether the name of a variable or option suggests that its value is a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and (words[-1] in _LEFT_OUT or words[-1].isdigit()):
        words.pop()
    words = [part for word in words for part in _parts(word)]
    if not words or (len(words) > 1 and words[0] in _SWITCHES) or words[-1] in _ABOUT:
        return False
    if words[-2:] == ["application", "credentials"]:  # Google's variable contains a path
        return False
    if any(_ALWAYS.fullmatch(word) for word in words):
        return True
    if any(word == "key" and before in _KEYS for before, word in pairwise(words)):
        return True
    return _ends_secret(words[-1], words[-2] if len(words) > 1 else "")


def _parts(word: str) -> tuple[str, ...]:
    """Splits HFTOKEN into words as HF_TOKEN is."""
    before = word.removesuffix("token")
    return (before, "token") if before and before != word else (word,)


def _ends_secret(last: str, before: str) -> bool:
    match last:
        case "key":
            return before not in _OTHER_KEYS
        case "token":
            return before not in _OTHER_TOKENS
        case "auth" | "oauth":
            return True
        case "keys":
            return before in _KEYS
        case "tokens":
            return before in _TOKENS
        case "pass" | "pwd":
            return before in _PASSES
        case "pat":
            return before in _PATS
    return False


def mask_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with the values of secrets masked."""
    return {name: MASK if is_secret(name) else value for name, value in env.items()}


def lost_secrets(env: Mapping[str, str]) -> list[str]:
    """Returns the variables whose values were masked."""
    return sorted(name for name, value in env.items() if value == MASK)


def mask_script_text(text: str) -> str:
    """Returns a script with the values of secrets masked, as in `export HF_TOKEN=...`, with or without quotes."""
    found, at = [], 0
    for secret in _secrets(text):
        found += [text[at : secret.start], MASK]
        at = secret.start + len(secret.value)
    return "".join([*found, text[at:]])


def mask_words(words: Sequence[str]) -> list[str]:
    """Returns the words with the values of secrets masked, as in `--hf-token=...` and `--hf-token ...`."""
    found: list[str] = []
    for before, word in pairwise(["", *words]):
        option = _OPTION.fullmatch(word)
        if option and is_secret(option[1]) and option[2].lower() not in _NO_SECRETS:
            found.append(f"{option[1]}={MASK}")
        elif _is_secret_value(before, word):
            found.append(MASK)
        else:
            found.append(mask_script_text(word))
    return found


def masked_lines(text: str) -> list[tuple[int, str]]:
    """Returns (line number from 1, name) of each secret in a text whose value is still the mask."""
    found, line, at = list[tuple[int, str]](), 1, 0
    for secret in _secrets(text):
        line, at = line + text.count("\n", at, secret.start), secret.start
        if secret.value.strip("\"'") == MASK:
            found.append((line, secret.name))
    return found


def masked_names(words: Sequence[str]) -> list[str]:
    """Returns the options and variables among these words whose value is still the mask."""
    found = []
    for before, word in pairwise(["", *words]):
        if word == MASK and _is_secret_value(before, word):
            found.append(before)
        found += [name for _, name in masked_lines(word)]
    return found


@dataclass(frozen=True, slots=True)
class _Secret:
    name: str
    start: int  # position of the value
    value: str  # including its quotes


def _secrets(text: str) -> Iterator[_Secret]:
    """Yields secrets in order, none within another. A value that is only a reference, such as $(cat FILE), is not
    a secret itself but may contain some."""
    over, within = 0, list[int]()  # the end of the last secret; the ends of the references that are being searched
    for match in _NAMED.finditer(text):
        name = match["option"] or match["name"]
        value = _VALUE.match(text, match.end()) if match.end() >= over and is_secret(name) else None
        if value is None or value[0].strip("\"'").lower() in _NO_SECRETS:
            continue
        while within and within[-1] <= match.start():
            within.pop()
        if len(within) < _DEEPEST and _REFERENCE.fullmatch(value[0]):
            within.append(value.end())
        else:
            over = value.end()
            yield _Secret(name, value.start(), value[0])


def _is_secret_value(option: str, word: str) -> bool:
    """Returns whether the word is the value of that option, and the option names a secret."""
    is_named = option.startswith("-") and "=" not in option and is_secret(option)
    return is_named and word.lower() not in _NO_SECRETS and not re.match(r"--?[A-Za-z]", word)
