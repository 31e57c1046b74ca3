"""A cluster file under validation, with the faults found so far."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headway.catalog.providers import PROVIDERS
from headway.clusterfile import groups
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.clusterfile.models.scheduling.partitions import PartitionPart
from headway.domain.cluster import Plan
from headway.domain.provider_traits import ProviderTraits
from headway.errors import Fault
from headway.validation import syntax_rules

FaultText = tuple[str, str, str]  # path, message, hint
MOST_COMPARED = 20_000


_PATH_STEP = re.compile(r"[.\[]")
DEFAULT_PARTITION = "train"


@dataclass
class FileDraft:
    """The valid part of a file, the paths removed from it, and the faults found so far."""

    file: ClusterFile
    raw: Mapping[str, Any]
    owner: str
    catalogue: Mapping[str, Plan]
    removed: frozenset[str] = frozenset()
    kept: Mapping[str, list[int]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    compared: int = 0  # number of names compared for hints

    def suggest(self, word: str, known: Collection[str]) -> str:
        """Returns a hint from syntax_rules.did_you_mean. That comparison is slow, so in a file with very many faults
        only the first ones get a hint."""
        self.compared += len(known)
        return syntax_rules.did_you_mean(word, known) if self.compared <= MOST_COMPARED else ""

    def fault(self, path: str, message: str, hint: str = "") -> None:
        """Records an error."""
        self.faults.append(Fault(path, message, hint))

    def warn(self, path: str, message: str, hint: str = "") -> None:
        """Records a warning."""
        self.faults.append(Fault(path, message, hint, level="warning"))

    def is_intact(self, *paths: str) -> bool:
        """Returns whether nothing was removed at or under these paths."""
        return self._incomplete.isdisjoint(paths)

    @cached_property
    def _incomplete(self) -> frozenset[str]:
        """The removed paths, and all paths above them: looked up once per rule and entry of files with many faults."""
        found = set(self.removed)
        for place in self.removed:
            found.update(place[: end.start()] for end in _PATH_STEP.finditer(place))
        return frozenset(found)

    def item(self, path: str, index: int) -> str:
        """Returns the path of a list item by its index in the file as written."""
        original = self.kept.get(path)
        return f"{path}[{original[index] if original else index}]"

    def names(self, path: str) -> list[str]:
        """Returns the names under a mapping as written, faulty ones included, so that references to them are not
        reported."""
        value = self.raw.get(path)
        return [str(name) for name in value] if isinstance(value, dict) else []

    @property
    def provider(self) -> ProviderTraits:
        """Capabilities of the chosen provider."""
        return PROVIDERS[self.file.provider]

    @property
    def total(self) -> int:
        """Slots of the cluster: the maximum number of nodes, and the spares."""
        return groups.total_slots(self.file)

    @property
    def has_size(self) -> bool:
        """Returns whether the number of slots is known."""
        return self.is_intact("groups", "plan", "nodes", "max", "spares") and not (
            self.file.nodes is None and not self.file.groups
        )


def partitions_of(file: ClusterFile) -> Mapping[str, PartitionPart]:
    """Returns the partitions by name; one over all nodes if the file has none."""
    return file.partitions or {DEFAULT_PARTITION: PartitionPart()}
