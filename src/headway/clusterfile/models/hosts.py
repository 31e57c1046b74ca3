"""The sections `hosts` and `firewall` of the cluster file: machines that the user owns, and access to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from headway.validation import syntax_rules
from headway.validation.field_types import FileSection, PublicKey, checked_by, host_from_text, value_error

SignInName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
ServerPath = Annotated[str, checked_by(syntax_rules.path_fault, "give an absolute path")]


class JumpPart(FileSection):
    """A jump host, as in ssh's ProxyJump."""

    address: Annotated[str, checked_by(syntax_rules.host_fault)] = Field(description="Address or host name.")
    user: SignInName = Field("root", description="User to sign in as.")
    port: int = Field(22, ge=1, le=65535, description="SSH port.")
    key: ServerPath | None = Field(
        None, description="Private key file on the server's machine (default: the host's key file)."
    )
    host_key: PublicKey | None = Field(
        None, description="Public host key (default: the key that it presents at the first connection)."
    )


_BY_GROUP = "it holds for a group: give the machine a group of its own (groups.NAME)"


class HostPart(FileSection):
    """One of your machines."""

    elsewhere: ClassVar[Mapping[str, str]] = dict.fromkeys(("plan", "mig", "shards", "mps"), _BY_GROUP)
    address: Annotated[str, checked_by(syntax_rules.host_fault)] = Field(description="Address or host name.")
    role: Literal["head", "node"] | None = Field(
        None,
        description="head: controller, database and logins; node: never a head (default: the first machine is the head).",
    )
    user: SignInName = Field("root", description="User to sign in as; users other than root need sudo.")
    port: int = Field(22, ge=1, le=65535, description="SSH port.")
    key: ServerPath | None = Field(
        None, description="Private key file on the server's machine (default: the cluster's key)."
    )
    sudo_password: ServerPath | None = Field(
        None,
        description="File on the server's machine with the sudo password (default: sudo asks for none).",
    )
    jump: Annotated[JumpPart, BeforeValidator(host_from_text)] | None = Field(
        None, description="Jump host.", examples=["bastion.example.org"]
    )
    host_key: PublicKey | None = Field(
        None,
        description="Public host key (default: the key that it presents at the first connection, which is then pinned).",
    )
    run_in: Literal["native", "container"] | None = Field(
        None,
        description="native: packages are installed on the host; container: Headway's node image runs there as a system "
        "container (default: native if the host runs the image's Debian, otherwise container).",
    )
    container_port: int = Field(2222, ge=1, le=65535, description="SSH port of the machine in its container.")


class HostsSourcePart(FileSection):
    """Machines that OpenTofu or Terraform made. `headway plan` and `apply` read them where they run: the server gets the
    list."""

    from_: str | None = Field(
        None,
        alias="from",
        description="Command that prints the outputs as JSON. It runs in the folder of the cluster file, without a shell.",
        examples=["tofu output -json"],
    )
    file: str | None = Field(None, description="State file, instead of a command.", examples=["terraform.tfstate"])
    output: str = Field("hosts", description="Output with the list of addresses, or of hosts with the fields below.")

    @model_validator(mode="after")
    def _one_source(self) -> HostsSourcePart:
        if (self.from_ is None) == (self.file is None):
            raise value_error("needs either from or file", 'for example {from: "tofu output -json"}')
        return self


def hosts_were_read(value: Any) -> Any:
    """Returns the list of hosts. Refuses a source, which only the command line reads: the server runs no command of a
    file."""
    if isinstance(value, dict):
        raise value_error("must be a list: only headway plan and headway apply read it from a command or file")
    return value


class FirewallPart(FileSection):
    """Provider ssh: access to your machines. Only the cluster reaches the ports of Slurm, the database and the agent."""

    ssh_from: list[Annotated[str, checked_by(syntax_rules.network_fault)]] = Field(
        default_factory=list,
        max_length=100,
        description="Networks that may use SSH, in addition to the cluster's machines and the server (default: all).",
        examples=[["10.0.0.0/8"]],
    )
