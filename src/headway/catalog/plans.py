"""Node plans: those of the package, and those of the user's catalogue file."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field, RootModel, ValidationError

from headway.domain.cluster import Plan
from headway.errors import Fault, InvalidSpec
from headway.validation.error_paths import path_text, pydantic_faults, sort_faults, text_faults
from headway.validation.field_types import FileSection, Name
from headway.validation.yaml_parser import parse_yaml

Figure = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class ExpectsPart(FileSection):
    """Least figures of a sound node; what is left out is not looked at."""

    nvlinks: int | None = Field(None, ge=0, le=64, description="NVLinks of one GPU.")
    burn_tflops: Figure | None = Field(
        None, description="Matrix products in bfloat16 on one GPU, by mma.sync, TFLOP/s."
    )
    copy_gb_s: Figure | None = Field(None, description="Copy within a GPU's memory, GB/s (read and written).")
    upload_gb_s: Figure | None = Field(None, description="Copy from the machine's memory to a GPU, GB/s.")
    peer_gb_s: Figure | None = Field(None, description="Copy from one GPU of a node to another, GB/s.")
    allreduce_gb_s: Figure | None = Field(None, description="All-reduce between two nodes, GB/s of bus bandwidth.")


class PlanPart(FileSection):
    """One entry of a catalogue file."""

    gpu_type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,15}$")] | None = Field(
        None, description="GPU type as jobs name it.", examples=["h100"]
    )
    gpu_product: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._/-]{0,63}$")] | None = Field(
        None, description="The GPU as nvidia-smi names it."
    )
    gpus: int = Field(0, ge=0, le=64, description="GPUs of a node.")
    gpu_memory_mib: int = Field(0, ge=0, le=10_000_000, description="Memory of one GPU.")
    cpus: int = Field(ge=1, le=4096, description="vCPUs of a node.")
    memory_mib: int = Field(ge=1024, le=1_000_000_000, description="Memory of a node.")
    price_usd_per_node_hour: float = Field(
        0, allow_inf_nan=False, ge=0, le=100_000, description="Price of a node for an hour."
    )
    expects: ExpectsPart = Field(
        default_factory=ExpectsPart, description="What a sound node reaches: its tests hold it against this."
    )


class CatalogueFile(RootModel[Annotated[dict[Name, PlanPart], Field(max_length=1000)]]):
    """Plan name -> plan."""


def load_catalogue(extra: Mapping[str, Any] | None = None) -> dict[str, Plan]:
    """Returns the package's plans and the user's; a user's plan replaces the package's of the same name. Raises
    InvalidSpec with paths under "catalogue"."""
    plans = dict(_own())
    if extra:
        plans.update(_plans(dict(extra)))
    return plans


@lru_cache(maxsize=1)
def _own() -> dict[str, Plan]:
    text = files("headway.catalog").joinpath("plans.yaml").read_text(encoding="utf-8")
    return _plans(parse_yaml(text))


def _plans(mapping: dict[str, Any]) -> dict[str, Plan]:
    found, plain = text_faults(mapping, CatalogueFile)
    entries: dict[str, PlanPart] = {}
    try:
        entries = CatalogueFile.model_validate(plain).root
    except ValidationError as error:
        found.extend(pydantic_faults(error, CatalogueFile))
    for name, entry in entries.items():
        if entry.gpus and not entry.gpu_type:
            place = (name, "gpu_type")
            found.append((place, Fault(path_text(place), "is missing", "say which GPU it is")))
    if found:
        faults = [Fault(f"catalogue.{item.path}", item.message, item.hint) for item in sort_faults(found)]
        raise InvalidSpec(faults, "the catalogue of your own")
    return {name: _plan(name, entry) for name, entry in entries.items()}


def _plan(name: str, entry: PlanPart) -> Plan:
    has_gpus = entry.gpus > 0
    return Plan(
        name=name,
        gpu_type=(entry.gpu_type or "") if has_gpus else "",
        gpus=entry.gpus,
        gpu_memory_mib=entry.gpu_memory_mib if has_gpus else 0,
        cpus=entry.cpus,
        memory_mib=entry.memory_mib,
        price_usd_per_node_hour=Decimal(str(entry.price_usd_per_node_hour)),
        gpu_product=(entry.gpu_product or "") if has_gpus else "",
        expects={name: float(figure) for name, figure in entry.expects if figure is not None},
    )
