"""Amounts of money in answers."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import PlainSerializer

# A number in JSON, with two decimals, exact to the cent.
Usd = Annotated[Decimal, PlainSerializer(float, return_type=float)]
