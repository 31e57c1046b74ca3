"""The rules of a cluster file that concern several fields, read from the code that checks them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

RULES = Path(__file__).parents[1] / "src" / "headway" / "clusterfile" / "rules"
GAP = "…"  # for what is known only when a file is checked
_KINDS = {"fault": "error", "warn": "warning"}


def rules() -> Iterator[tuple[str, str, str, str]]:
    """Yields (field, "error" or "warning", message, remedy) of each rule, in the order of the code."""
    for file in sorted(RULES.glob("*.py")):
        for function in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(function, ast.FunctionDef):
                yield from _rules_of(function)


def _rules_of(function: ast.FunctionDef) -> Iterator[tuple[str, str, str, str]]:
    texts = dict(_assigned(function))
    for node in ast.walk(function):
        kind, words = "error", []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KINDS:
            kind, words = _KINDS[node.func.attr], node.args
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
            words = node.value.elts
        field, message, remedy = [*(_text(word, texts) for word in words), "", "", ""][:3]
        if message.strip(GAP):
            yield field, kind, message, remedy


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yields (variable, text) of the paths that the function puts together."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            pairs = (
                zip(target.elts, node.value.elts, strict=False)
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                else [(target, node.value)]
            )
            for name, value in pairs:
                if isinstance(name, ast.Name) and isinstance(value, ast.JoinedStr | ast.IfExp):
                    yield name.id, _text(value, {})


def _text(node: ast.expr, texts: Mapping[str, str]) -> str:
    """Returns the text of an expression, with a gap for each value that is known only when a file is checked."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, texts) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, texts)
    if isinstance(node, ast.Name):
        return texts.get(node.id, GAP)
    if isinstance(node, ast.IfExp):
        return " or ".join(filter(None, dict.fromkeys((_text(node.body, texts), _text(node.orelse, texts)))))
    return GAP
