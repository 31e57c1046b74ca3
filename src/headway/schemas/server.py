"""Models of the server, and of the person who asks it."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class MlflowOut(ResponseModel):
    """The MLflow server: `not installed`, `starting`, `running`, or `failed` for the reason in `error`. `waiting_bytes`: what
    jobs have logged and it has not taken yet, as far as that was read; by cluster."""

    state: str
    error: str = ""
    waiting_bytes: dict[str, int] = {}


class ServerOut(ResponseModel):
    """The server. Its process, folder and database are empty unless the person is an admin."""

    url: str
    version: str
    pid: int
    state_dir: str
    database: str
    clusters: int
    # True if this is the leader among the servers on its database: it carries out operations and reacts to faults
    leads: bool = True
    # SHA-256 fingerprint of the certificate that the server made for itself; "" with another or without TLS
    fingerprint: str = ""
    mlflow: MlflowOut | None = None  # for admins


class KeyRotatedOut(ResponseModel):
    """A rotation of the key of the server's secrets: how many secrets are encrypted with the new key, and its file."""

    secrets: int
    file: str


class MeOut(ResponseModel):
    """The person of the request's token or session."""

    person: str
    role: str
    version: str
