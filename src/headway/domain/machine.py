"""A machine is what a provider gives: an address that answers SSH with a known host key."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headway.domain.survey import DetectedHardware


class MachineState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    STARTING = "starting"


@dataclass(frozen=True, slots=True)
class Jump:
    """A machine that the way to another one leads through (as ssh's ProxyJump)."""

    address: str
    user: str = "root"
    port: int = 22
    key_path: str = ""  # as in Machine
    host_key: str = ""  # pinned at first contact; "" = not seen yet


@dataclass(frozen=True, slots=True)
class Machine:
    name: str  # head or slot name
    cluster: str
    address: str
    state: MachineState
    host_key: str  # public host key line ("ssh-ed25519 AAAA..."), pinned
    user: str = "root"  # another one becomes root by sudo
    port: int = 22
    key_path: str = ""  # private key to sign in with; "" = the cluster's bootstrap key
    password_path: str = ""  # file with the password that sudo asks for; "" = it asks for none
    jump: Jump | None = None
    image: str = ""  # id of the node image it was made from
    # When its system last started, in unix seconds; 0 where the provider can't tell. Says nothing about which machine.
    started_at: float = field(default=0.0, compare=False)
    found: DetectedHardware | None = field(default=None, compare=False)  # what one of your own had when it was taken


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """What a provider needs to make a machine."""

    cluster: str
    name: str
    address: str
    image: str  # image name ("debian13")
    host_key_private: str  # OpenSSH private key text the machine will answer with
    host_key_public: str
    authorized_key: str  # the cluster's bootstrap public key
    gpus: int = 0  # device nodes wanted (simulated where there are none)
    image_tag: str = ""  # of all images of this name, this one; "" = the present one, built where it is missing
    head: bool = False  # it gets what heads keep: Slurm's state, the database


@dataclass(frozen=True, slots=True)
class Gap:
    """Something this host lacks, and how to get it. `fatal` gaps stop; the others are warnings."""

    what: str
    fix: str
    fatal: bool = True
