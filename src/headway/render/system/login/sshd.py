"""sshd and PAM: sign-in by keys only, and on compute nodes only for users with a job there."""

from __future__ import annotations

from headway.domain.machines.site import Site
from headway.render.escaping import MARK, require_word
from headway.render.system.login import head_user_limits
from headway.render.system.login.users import KEYS

SSHD = "/etc/ssh/sshd_config.d/10-headway.conf"
PAM = "/etc/pam.d/sshd"
PAM_MANAGER = "/etc/pam.d/systemd-user"
JOB_TMP = "/usr/lib/headway/pam/job_tmp.so"
_ADOPT = "action_no_jobs=deny action_unknown=newest action_adopt_failure=deny action_generic_failure=deny"


def sshd_conf(site: Site) -> str:
    """Returns sshd's configuration. The host key and root's key of local machines come with the image, because they
    must exist before the first sign-in. Users that Headway signs in as are not denied even if a departed user has
    the same name."""
    ours = operators(site)
    deny = [f"DenyUsers {require_word(name, 'teams')}" for name in site.departed if name not in ours]
    denied = ["# Users who left the cluster file; denied also with keys in their homes.", *deny] if deny else []
    return "\n".join(
        [
            f"# {MARK}",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "# Accounts and limits come from PAM.",
            "UsePAM yes",
            "# Reverse look-ups of clients would only delay logins.",
            "UseDNS no",
            "# Headway's server runs many commands over one connection and sets up many machines at once.",
            "MaxSessions 200",
            "MaxStartups 200:30:400",
            "ClientAliveInterval 30",
            "# Keys from the cluster file, and keys that users add themselves.",
            f"AuthorizedKeysFile {KEYS}/%u .ssh/authorized_keys",
            *denied,
            "Match User root",
            "    AuthorizedKeysFile /etc/headway/boot/authorized_keys .ssh/authorized_keys",
            "Match all",
            "",
        ]
    )


def operators(site: Site) -> tuple[str, ...]:
    """Returns the users that Headway signs in as on owned machines, where they become root by sudo."""
    return (
        tuple(require_word(name, "hosts") for name in sorted(site.own.operators) if name != "root") if site.own else ()
    )


def pam_node(operators: tuple[str, ...] = ()) -> str:
    """Returns PAM's rules for sshd on a node. `operators` may sign in without a job, like root."""
    who = "account    [success={} default=ignore] pam_succeed_if.so quiet user in {}\n"
    also = who.format(2, ":".join(operators)) if operators else ""
    return f"""\
# {MARK}
@include common-auth
account    required     pam_nologin.so
@include common-account
# root is Headway itself and the administrators.
{also}account    [success=1 default=ignore] pam_succeed_if.so quiet uid = 0
# Other users can sign in only with a running job on this node. The session has the job's limits of memory and GPUs.
account    required     pam_slurm_adopt.so {_ADOPT}
account    required     pam_permit.so
session    required     pam_loginuid.so
session    optional     pam_keyinit.so force revoke
# The job's own /tmp and /dev/shm, if the machine has the module (node/image/pam).
-session   optional     {JOB_TMP}
# Not common-session: pam_systemd would move the session out of the job's cgroup.
session    required     pam_unix.so
session    required     pam_limits.so
session    required     pam_env.so
session    required     pam_env.so envfile=/etc/default/locale
@include common-password
"""


def pam_head() -> str:
    """Returns PAM's rules for sshd on a head."""
    return f"""\
# {MARK}
@include common-auth
account    required     pam_nologin.so
@include common-account
session    required     pam_loginuid.so
session    optional     pam_keyinit.so force revoke
@include common-session
session    required     pam_limits.so
session    required     pam_env.so
session    required     pam_env.so envfile=/etc/default/locale
# CPU, memory and task limits of the session, also where systemd can't set them.
session    optional     pam_exec.so quiet {head_user_limits.SESSION_PROGRAM}
@include common-password
"""


def pam_manager() -> str:
    """Returns PAM's rules for a user's own service manager on the head, which starts what `systemd-run --user` is
    given. It runs outside the session, so it needs the session's limits too."""
    return f"""\
# {MARK}
@include common-account
session    required     pam_loginuid.so
session    required     pam_limits.so
session    optional     pam_exec.so quiet {head_user_limits.SESSION_PROGRAM}
@include common-session-noninteractive
session    optional     pam_keyinit.so force revoke
session    optional     pam_systemd.so
"""
