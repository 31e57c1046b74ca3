"""A machine from a provider: an address that answers SSH with a known host key."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headway.domain.machines.survey import DetectedHardware


class MachineState(StrEnum):
    """State of a machine, as its provider reports it."""

    RUNNING = "running"
    STOPPED = "stopped"
    STARTING = "starting"


@dataclass(frozen=True, slots=True)
class Jump:
    """A machine through which another one is reached (ssh's ProxyJump)."""

    address: str
    user: str = "root"
    port: int = 22
    key: str = ""  # path of a private key on the server's machine; "" = the cluster's bootstrap key
    host_key: str = ""  # pinned at the first contact; "" = not contacted yet


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, with the data that is needed to sign in to it."""

    name: str  # head or slot name
    cluster: str
    address: str
    state: MachineState
    host_key: str  # public host key line ("ssh-ed25519 AAAA..."), pinned
    user: str = "root"  # a user other than root becomes root by sudo
    port: int = 22
    key_path: str = ""  # private key to sign in with; "" = the cluster's bootstrap key
    password_path: str = ""  # file with sudo's password; "" = sudo asks for none
    jump: Jump | None = None
    image: str = ""  # id of the node image that it was created from
    # When its system last started, in unix seconds; 0 where the provider can't tell. It does not identify the machine,
    # so it is not compared.
    started_at: float = field(default=0.0, compare=False)
    # Hardware of an owned machine at the time it was taken over
    found: DetectedHardware | None = field(default=None, compare=False)
    # The owned machine in whose system container this one runs; None: it runs in none
    host: Machine | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """The data that a provider needs to create a machine."""

    cluster: str
    name: str
    address: str
    image: str  # image name ("debian13")
    host_key_private: str  # text of the OpenSSH private key that the machine will answer with
    host_key_public: str
    authorized_key: str  # the cluster's bootstrap public key
    gpus: int = 0  # GPU device nodes (simulated where the host has none)
    image_tag: str = ""  # tag of the image to use; "" = the current one, which is built if it is missing
    head: bool = False  # the machine keeps a head's data: Slurm's state and the database
    container_port: int = 0  # SSH port of a machine that runs in a container of an owned machine; 0: it does not


@dataclass(frozen=True, slots=True)
class HostProblem:
    """Something that a host lacks or that is wrong with it, and its remedy. A `fatal` problem stops the work; the others are
    warnings."""

    what: str
    fix: str
    fatal: bool = True
