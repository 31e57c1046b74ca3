"""Prices of GPU machines of clouds: the snapshot of the package, catalog/offers.yaml."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import Field, model_validator

from headway.domain.machines.offer import Offer, PurchaseOption
from headway.validation.field_types import FileSection

_MIB_OF_GIB = 1024
Text = Annotated[str, Field(min_length=1, max_length=200)]
Price = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
Gib = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class OfferPart(FileSection):
    """One instance type at one price."""

    type: Text
    gpu: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,15}$")]
    product: str = ""
    gpus: int = Field(ge=1, le=64)
    usd_per_hour: Price | None = None
    usd_per_gpu_hour: Price | None = None
    region: str = ""
    gpu_gib: Gib = 0
    cpus: int = Field(0, ge=0, le=4096)
    gib: Gib = 0
    gpu_link: str = ""
    network: str = ""
    gbit_s: int = Field(0, ge=0, le=1_000_000)
    note: str = ""

    @model_validator(mode="after")
    def _one_price(self) -> OfferPart:
        if (self.usd_per_hour is None) == (self.usd_per_gpu_hour is None):
            raise ValueError("give usd_per_hour or usd_per_gpu_hour")
        return self

    @property
    def price(self) -> Decimal:
        """Price of the machine, USD per hour."""
        if self.usd_per_gpu_hour is not None:
            return Decimal(str(self.usd_per_gpu_hour)) * self.gpus
        return Decimal(str(self.usd_per_hour))


class SourcePart(FileSection):
    """The rows that one source shows of one cloud."""

    source: Annotated[str, Field(pattern=r"^https://\S+$")]
    as_of: Annotated[date, Field(strict=False)]  # YAML 1.2 has no dates: it is text there
    cloud: Text
    region: str = ""
    purchase: Annotated[PurchaseOption, Field(strict=False)] = PurchaseOption.ON_DEMAND
    offers: list[OfferPart]


class OffersFile(FileSection):
    """The whole file."""

    sources: list[SourcePart]


@cache
def shipped_offers() -> tuple[Offer, ...]:
    """Returns the offers of catalog/offers.yaml."""
    from headway.validation.yaml_parser import parse_yaml

    text = files("headway.catalog").joinpath("offers.yaml").read_text(encoding="utf-8")
    loaded = OffersFile.model_validate(parse_yaml(text, "catalog/offers.yaml"))
    return tuple(_offer(source, part) for source in loaded.sources for part in source.offers)


def _offer(source: SourcePart, part: OfferPart) -> Offer:
    return Offer(
        cloud=source.cloud,
        instance_type=part.type,
        gpu_type=part.gpu,
        gpus=part.gpus,
        price_usd_per_node_hour=part.price,
        source=source.source,
        as_of=source.as_of,
        purchase=source.purchase,
        region=part.region or source.region,
        gpu_product=part.product,
        gpu_memory_mib=round(part.gpu_gib * _MIB_OF_GIB),
        cpus=part.cpus,
        memory_mib=round(part.gib * _MIB_OF_GIB),
        gpu_link=part.gpu_link,
        network=part.network,
        network_gbit_s=part.gbit_s,
        note=part.note,
    )
