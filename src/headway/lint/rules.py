"""All rules in one call."""

from __future__ import annotations

from collections.abc import Sequence

from headway.lint.batch_text import BatchText
from headway.lint.directive_rules import FolderExists, directive_rules
from headway.lint.findings import Finding, in_order
from headway.lint.launcher_rules import launcher_rules
from headway.lint.other_scheduler_rules import other_scheduler_rules
from headway.lint.resource_rules import resource_rules
from headway.lint.restart_rules import restart_rules
from headway.lint.site_rules import Site, site_rules
from headway.lint.variable_rules import variable_rules

_RULES = (resource_rules, launcher_rules, restart_rules, variable_rules, other_scheduler_rules)
MAX_BYTES = 1 << 20  # a longer script holds data; only what sbatch itself reads of it is looked at


def lint_script(
    script: str,
    site: Site | None = None,
    *,
    flags: Sequence[str] = (),
    folder_exists: FolderExists | None = None,
) -> list[Finding]:
    """Returns the findings of all rules in the order of their lines. `site`: also those that need a cluster. `flags`:
    options of sbatch's command line. `folder_exists` says whether a folder exists where the script will be submitted."""
    text = BatchText(script if len(script) <= MAX_BYTES else "".join(script[:MAX_BYTES].rpartition("\n")[:2]), flags)
    found = list(directive_rules(text, None if site else folder_exists or (lambda _: False)))
    if script.strip():
        # Of a script that no shell runs, such as one in Python, only the directives are known.
        for rules in _RULES if text.is_shell else (resource_rules,):
            found += rules(text)
        if site is not None:
            found += site_rules(text, site)
    return in_order(found)
