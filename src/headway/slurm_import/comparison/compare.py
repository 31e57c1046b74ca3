"""Compares two Slurms: the site, and the cluster that was made of it. A difference without a reason is unexplained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headway.slurm_import.comparison import compare_accounts, compare_config, compare_nodes, compare_partitions
from headway.slurm_import.comparison.differences import Context, Difference, Finding
from headway.slurm_import.comparison.slurm_state import SlurmState
from headway.slurm_import.comparison.verdict_reasons import find_reasons
from headway.slurm_import.importer import Imported

SECTIONS = ("config", "partition", "nodes", "account", "qos", "share", "user")


@dataclass(frozen=True)
class Comparison:
    """`equal`: number of compared values that agree, by section; `missing`: what was not compared -> why."""

    differences: list[Difference]
    equal: Mapping[str, int]
    missing: Mapping[str, str]
    rehearsal: bool

    @property
    def unexplained(self) -> list[Difference]:
        """The differences without a reason."""
        return [one for one in self.differences if not one.reason]


def compare(imported: Imported, old: SlurmState, new: SlurmState) -> Comparison:
    """Returns the differences between a site and a cluster. A part that one side lacks is not compared."""
    context = Context(imported.spec, find_reasons(imported), old, new, tuple(imported.notes))
    findings = list(_all(context))
    equal = {section: sum(1 for f in findings if f.section == section and f.equal) for section in SECTIONS}
    missing = {f"{name} of the site": why for name, why in old.missing.items()}
    missing |= {f"{name} of the cluster": why for name, why in new.missing.items()}
    return Comparison([f.difference for f in findings if not f.equal], equal, missing, context.rehearsal)


def _all(context: Context) -> Iterator[Finding]:
    yield from compare_config.findings(context)
    yield from compare_partitions.findings(context)
    yield from compare_nodes.findings(context)
    yield from compare_accounts.findings(context)
