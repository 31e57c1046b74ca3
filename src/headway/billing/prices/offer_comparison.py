"""Which offers of clouds provide a number of GPUs, and in which order of price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from headway.domain.machines.offer import Offer, PurchaseOption, Quote, quote

_DAYS_OF_YEAR = 365.25
_MONTHS_FROM_DAYS = 61  # an age below is said in days, from here on in months


@dataclass(frozen=True, slots=True)
class OfferFilter:
    """Which offers are compared; "" and 0 select all."""

    gpu_type: str = ""  # "h100"
    cloud: str = ""
    region: str = ""
    purchase: PurchaseOption | None = None
    gpus_per_node: int = 0  # at least so many GPUs in one machine

    def selects(self, offer: Offer) -> bool:
        """Returns whether an offer with GPUs is compared. Names are compared without regard to case."""
        return (
            offer.gpus >= max(1, self.gpus_per_node)
            and self.gpu_type.lower() in ("", offer.gpu_type)
            and self.cloud.lower() in ("", offer.cloud)
            and self.region.lower() in ("", offer.region)
            and self.purchase in (None, offer.purchase)
        )


def compare(offers: Iterable[Offer], only: OfferFilter, gpus: int = 0) -> list[Quote]:
    """Returns what `gpus` GPUs cost by each offer, the lowest price first; with 0, one machine of each, the lowest price
    of a GPU first."""
    quotes = [Quote(offer, 1) if gpus == 0 else quote(offer, gpus) for offer in offers if only.selects(offer)]
    return sort_quotes(quotes, gpus)


def sort_quotes(quotes: Iterable[Quote], gpus: int) -> list[Quote]:
    """Returns the quotes in the order of `compare`."""
    return sorted(
        quotes,
        key=lambda found: (
            found.price_usd_per_hour if gpus else 0,
            found.offer.price_usd_per_gpu_hour,
            found.offer.cloud,
            found.offer.instance_type,
            found.offer.region,
        ),
    )


def age_text(as_of: date, today: date) -> str:
    """Returns the age of a price: "today", "12 days old", "18 months old"."""
    days = (today - as_of).days
    if days < 1:
        return "today"
    if days < _MONTHS_FROM_DAYS:
        return f"{days} day{'s' * (days != 1)} old"
    return f"{round(days / _DAYS_OF_YEAR * 12)} months old"
