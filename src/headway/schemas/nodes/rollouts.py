"""Models of rollouts, which replace nodes by nodes of another image."""

from __future__ import annotations

from pydantic import Field

from headway.schemas.base import RequestModel


class RollIn(RequestModel):
    """Replaces nodes by nodes of another image. `by_s`: seconds that jobs may run on before their node is replaced;
    null waits for their end. `back`: go back to the previous image. `head`: replace the head too, as the last
    machine. `stop`: stop the roll; nodes that it has drained are resumed."""

    by_s: int | None = Field(None, ge=0, le=604_800)
    back: bool = False
    head: bool = False
    stop: bool = False
