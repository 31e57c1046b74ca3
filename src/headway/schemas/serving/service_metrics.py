"""Answers about the figures of a service."""

from __future__ import annotations

from headway.schemas.base import ResponseModel

MOST_MINUTES = 7 * 24 * 60


class Percentiles(ResponseModel):
    """Times within which half, 95 % and 99 % of the answers came, in milliseconds; right to about 5 %."""

    p50: float
    p95: float
    p99: float


class ServiceRates(ResponseModel):
    """What was counted over some time. Times are null without answers; those of failed, aborted and WebSocket requests do not
    count."""

    requests: int = 0
    requests_per_s: float = 0.0
    errors: int = 0  # answers with status 5xx, or that broke off
    error_rate: float = 0.0  # 0 to 1
    aborted: int = 0  # requests that the client gave up
    latency_ms: Percentiles | None = None  # until the answer was complete
    first_byte_ms: Percentiles | None = None
    first_token_ms: Percentiles | None = None  # only of replicas that publish it
    prompt_tokens: int = 0
    generated_tokens: int = 0
    tokens_per_s: float = 0.0  # generated


class ServiceRatesOfMinute(ResponseModel):
    """What was counted in the minute that begins at `at` (Unix seconds), or in several: a course has at most about 500 steps."""

    at: float
    minutes: int = 1
    rates: ServiceRates


class ServiceMetricsOut(ResponseModel):
    """Figures of a service from `start` (Unix seconds) on, over `seconds`. Requests and times are counted by the proxy, tokens by
    the replicas. `usd` is the cost of the replicas' jobs in this time; null if it is not known or not yours to see."""

    service: str  # id
    start: float
    seconds: float
    all: ServiceRates
    versions: dict[int, ServiceRates] = {}
    by_minute: list[ServiceRatesOfMinute] = []
    usd: float | None = None
    usd_per_million_tokens: float | None = None  # of prompts and answers
