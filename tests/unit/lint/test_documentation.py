"""Every rule is in the docs' table, with the levels that it can have."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
RULE = re.compile(
    r'Finding\(\s*"([a-z-]+)", (.*?)(?:directive|text|command|line|number|numbers|trap|behind|work|programs|blocking|1\b)'
)


def test_every_rule_is_documented_with_its_levels() -> None:
    source = "".join(file.read_text() for file in sorted((ROOT / "src/headway/lint").glob("*_rules.py")))
    rows = re.findall(r"^\| (`.*?) \| ([a-z, ]+) \| ", (ROOT / "docs/howto/lint.md").read_text(), re.MULTILINE)
    documented = {rule: set(levels.split(", ")) for names, levels in rows for rule in re.findall("`([a-z-]+)`", names)}
    found: dict[str, set[str]] = {}
    for rule, levels in RULE.findall(source):
        found.setdefault(rule, set()).update(re.findall('"(error|warning|note)"', levels))
    assert found.keys() == documented.keys()
    for rule, levels in found.items():
        assert levels <= documented[rule], rule
