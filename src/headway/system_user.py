"""The user behind sudo, and file access as that user."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator


def user_behind_sudo() -> pwd.struct_passwd | None:
    """Returns the user who called sudo; None without sudo or if root called it."""
    name = os.environ.get("SUDO_USER", "") if os.geteuid() == 0 else ""
    try:
        user = pwd.getpwnam(name) if name else None
    except KeyError:
        return None
    return user if user is not None and user.pw_uid != 0 else None


@contextlib.contextmanager
def acting_as(user: pwd.struct_passwd) -> Iterator[None]:
    """Gives file access as that user, so that a symbolic link in their home cannot misuse root's rights. The change
    applies to the whole process, so the body must not await."""
    groups = os.getgroups()
    os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
    os.setegid(user.pw_gid)
    os.seteuid(user.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
