"""Bodies for the instances of a stand-in of a cloud: a launched instance is a bare Debian machine that boots with its user data
by cloud-init (NoCloud), and is removed when the instance is ended."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Protocol

from tests.cluster.providers.bare_machines import Bare, baked_image, remove, run

from headway.images.podman import Podman
from headway.providers.local.provider import systemd_argv


class CloudWithBodies(Protocol):
    """A stand-in of a cloud that calls these functions when an instance starts, ends, and stops or starts again."""

    born: Callable[[str, str, str], None] | None  # id, address, user data
    ended: Callable[[str], None] | None
    halted: Callable[[str, bool], None] | None  # id, whether it runs


@dataclass
class MachineBodies:
    """The machines of a stand-in. They have the addresses that the cloud gave them, in one subnet; all mount the same /home and
    /scratch, because this kernel has no NFS."""

    folder: Path
    cloud: CloudWithBodies
    threads: list[Thread] = field(default_factory=list)
    removals: list[Thread] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    made: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tag = baked_image()
        self.bare = Bare(self.folder / "bare", tag=self.tag)
        podman = Podman(self.folder)
        self.base, self.limits = podman.base(), asyncio.run(podman.limits(self.tag))
        self.cloud.born, self.cloud.ended, self.cloud.halted = self.born, self.ended, self.halted

    def container(self, instance: str) -> str:
        return f"{self.bare.name}-{instance}"

    def born(self, instance: str, address: str, user_data: str) -> None:
        """Boots the machine of an instance. The launch is answered before it is up, as by a cloud."""
        seed = self.folder / "seeds" / instance
        seed.mkdir(parents=True)
        (seed / "meta-data").write_text(f"instance-id: {instance}\nlocal-hostname: ip-{address.replace('.', '-')}\n")
        (seed / "user-data").write_text(user_data)
        argv = [
            *("run", "--detach", "--privileged", *systemd_argv(), "--name", self.container(instance)),
            *(
                "--network",
                self.bare.name,
                "--ip",
                address,
                "--hostname",
                f"ip-{address.replace('.', '-')}",
                "--no-hosts",
            ),
            *("--dns", "none", "--log-driver", "none", "--pids-limit", "-1", "--label", "headway=1", "--pull", "never"),
            *("--label", f"headway.owner={self.bare.name}", "--volume", f"{seed}:/var/lib/cloud/seed/nocloud:ro"),
            *(part for one in ("home", "scratch") for part in ("--volume", f"{self.bare.folder / one}:/{one}")),
        ]
        self.made.add(instance)
        for thread in self.removals:  # one of them may still have the address
            thread.join(timeout=120)
        run(*self.base, *argv, *self.limits, self.tag, "/sbin/init", timeout_s=120)
        thread = Thread(target=self._finish, args=(instance,))
        thread.start()
        self.threads.append(thread)

    def _finish(self, instance: str) -> None:
        """Gives the machine what podman took from its image: a resolver and names of its own, which a cloud's image has.
        Users, keys and all that is Headway's come by cloud-init."""
        lines = Path("/etc/resolv.conf").read_text().splitlines()
        resolver = "".join(f"{line}\n" for line in lines if line.startswith("nameserver"))
        script = f"""umount /etc/hostname /etc/resolv.conf 2>/dev/null
printf '%s' {shlex.quote(resolver)} >/etc/resolv.conf
hostname >/etc/hostname
printf '127.0.0.1 localhost\\n' >/etc/hosts
"""
        try:
            run("podman", "exec", self.container(instance), "sh", "-c", script)
        except BaseException as error:
            if instance in self.made:
                self.failures.append(error)

    def ended(self, instance: str) -> None:
        """Removes the machine of an instance. The request is answered before it is gone."""
        self.made.discard(instance)
        thread = Thread(target=remove, args=([self.container(instance)],))
        thread.start()
        self.removals.append(thread)

    def halted(self, instance: str, runs: bool) -> None:
        run("podman", "start" if runs else "stop", self.container(instance), check=False, timeout_s=120)
        if runs:
            self._finish(instance)

    def inside(self, instance: str, *argv: str, check: bool = True) -> str:
        """Runs a command in a machine without SSH and returns its output."""
        return run("podman", "exec", self.container(instance), *argv, check=check)

    def close(self) -> None:
        for thread in self.threads:
            thread.join(timeout=120)
        for instance in list(self.made):
            self.ended(instance)
        for thread in self.removals:
            thread.join(timeout=120)
        self.bare.down()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not self.failures, self.failures
