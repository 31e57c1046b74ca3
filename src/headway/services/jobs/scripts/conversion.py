"""Offers to convert a text of the submit form that is a job file of another scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from headway.convert.job_description import Loss
from headway.errors import Fault, InvalidSpec

MAX_FORM_BYTES = 64 << 10  # the form is checked while it is filled in, so larger files are left to `headway convert`


@dataclass(frozen=True, slots=True)
class OfferedConversion:
    """A job file of another scheduler as a batch script. `name`: what it is, such as "PBS script". `losses`: directives and
    fields that are lost or changed. `faults`: why it can't be converted; then there is no text."""

    name: str
    text: str = ""
    losses: Sequence[Loss] = ()
    faults: Sequence[Fault] = ()


async def offer_conversion(text: str) -> OfferedConversion | None:
    """Returns the converted job file; None for a Slurm script, for another text, and for one of more than 64 KiB."""
    data = text.encode()
    if not text.strip() or len(data) > MAX_FORM_BYTES:
        return None
    return await asyncio.to_thread(_offer, text, data)


def _offer(text: str, data: bytes) -> OfferedConversion | None:
    # They load the parser of YAML, for which the server's start need not wait.
    from headway.convert.conversion import convert_file
    from headway.convert.formats import NAMES, SCRIPTS, Source, parse_document, recognise_document, recognise_script

    try:
        source = recognise_script(text)
        if source not in SCRIPTS:
            source = recognise_document(parse_document(text))
    except InvalidSpec:
        return None  # of no format or of several
    if source is Source.SLURM:
        return None
    try:
        converted = convert_file(data, source=source)
    except InvalidSpec as error:
        return OfferedConversion(NAMES[source], faults=error.faults)
    losses = [loss for loss in converted.losses if loss.outcome != "same"]
    return OfferedConversion(NAMES[source], converted.text, losses)
