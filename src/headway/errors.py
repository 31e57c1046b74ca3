"""Every error Headway raises on purpose.

    HeadwayError                 what happened, where, what to do; never shown with a traceback
    ├── InvalidSpec              the user's file has faults (all of them, with field paths)       HTTP 422, exit 2
    ├── NotAllowed               the person may not do this                                       HTTP 403, exit 4
    │   └── SignInAgain          the browser session is too old for what can't be undone          HTTP 403, exit 4
    ├── NotSignedIn              no or an unknown token                                           HTTP 401, exit 4
    ├── TooManyTries             sign-in has failed too often from here                           HTTP 429, exit 4
    ├── TooManySubmits           one person submits more jobs a minute than the server allows     HTTP 429, exit 1
    ├── TooManyAtOnce            as much as may run at once runs already                          HTTP 429, exit 1
    ├── NotFound                 no such cluster, job, machine, ...                               HTTP 404, exit 5
    ├── Conflict                 another operation holds the cluster, or the plan has changed     HTTP 409, exit 6
    ├── NeedsConfirmation        a disturbing change with neither a terminal nor --yes            exit 3
    ├── Refused                  a request that can't be done as asked (a port in use, ...)       HTTP 400, exit 1
    ├── StoreUnavailable         the server's own database does not answer (store.db.errors)      HTTP 503, exit 7
    ├── Unreachable              a machine, the controller or the server does not answer          HTTP 503, exit 7
    │   └── Unanswered           the same, after the request had gone out: it may have been done
    └── CommandFailed            a process ended badly; carries argv, code and stderr             HTTP 502, exit 1

`api.http.error_handlers` maps them to HTTP in one handler and `cli.main` to exit codes in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in a spec. `path` is the field's path ("partitions.urgent.preempt"), "" for the whole file."""

    path: str
    message: str
    hint: str = ""
    level: str = "error"  # error | warning

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        return f"{text}; {self.hint}" if self.hint else text


class HeadwayError(Exception):
    """Base of Headway's errors. `message` says what happened and where; `hint` says what to do."""

    exit_code = 1
    http_status = 400
    kind = "error"

    def __init__(self, message: str, *, hint: str = "", retry_after_s: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retry_after_s = retry_after_s  # after this time a retry may succeed; 0: it is not known
        # True if part of the work was done and undone again: a retry with the same key gets this answer
        # (api.http.idempotency).
        self.settled = False

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    @property
    def first_line(self) -> str:
        """Returns the first non-blank line of the message, or the kind of error if the message is blank; never ""."""
        return next((line for line in self.message.splitlines() if line.strip()), self.kind)


CLUSTER_FILE = "the cluster file"


class InvalidSpec(HeadwayError):
    """The user's file cannot be used. `faults` holds every fault found; `what` names the file in the message."""

    exit_code = 2
    http_status = 422
    kind = "invalid_spec"

    def __init__(self, faults: Sequence[Fault], what: str = CLUSTER_FILE) -> None:
        count = len(faults)
        super().__init__("\n".join([f"{what} has {count} fault{'s' * (count != 1)}:", *(f"  {f}" for f in faults)]))
        self.faults = tuple(faults)


class NotSignedIn(HeadwayError):
    """The request has no token or an unknown one."""

    exit_code = 4
    http_status = 401
    kind = "not_signed_in"


class NotAllowed(HeadwayError):
    """The person may not do this."""

    exit_code = 4
    http_status = 403
    kind = "not_allowed"


class SignInAgain(NotAllowed):
    """The person's sign-in is too long ago for something that can't be undone."""

    kind = "sign_in_again"


class TooManyTries(HeadwayError):
    """Sign-in failed too often from this address."""

    exit_code = 4
    http_status = 429
    kind = "too_many_tries"


class TooManySubmits(HeadwayError):
    """One person submits jobs too fast. Nothing was done, and a retry succeeds after `retry_after_s`."""

    http_status = 429
    kind = "too_many_submits"


class TooManyAtOnce(HeadwayError):
    """Too much runs already. Nothing was done, and a retry may succeed in a moment."""

    http_status = 429
    kind = "too_many_at_once"


class NotFound(HeadwayError):
    """There is no such cluster, job or machine."""

    exit_code = 5
    http_status = 404
    kind = "not_found"


class Conflict(HeadwayError):
    """Another operation holds the cluster, or the plan has changed."""

    exit_code = 6
    http_status = 409
    kind = "conflict"


class NeedsConfirmation(HeadwayError):
    """A disturbing change has neither a terminal nor --yes."""

    exit_code = 3
    http_status = 409
    kind = "needs_confirmation"


class Refused(HeadwayError):
    """The request can't be carried out as it is."""

    exit_code = 1
    http_status = 400
    kind = "refused"


class Unreachable(HeadwayError):
    """A machine, the controller or the server does not answer."""

    exit_code = 7
    http_status = 503
    kind = "unreachable"


class Unanswered(Unreachable):
    """The answer was lost after the request had been sent; it is not known whether it was carried out."""


class CommandFailed(HeadwayError):
    """A process, on this machine or on a cluster machine, ended with an error or exceeded its time limit."""

    http_status = 502
    kind = "command_failed"

    def __init__(
        self, argv: Sequence[str], code: int | None, stderr: str, *, where: str = "", hint: str = "", out: bytes = b""
    ) -> None:
        ended = "ran past its time limit" if code is None else f"ended with {code}"
        place = f" on {where}" if where else ""
        last = stderr.strip()[-600:]
        super().__init__(f"{' '.join(argv)[:200]}{place} {ended}" + (f": {last}" if last else ""), hint=hint)
        self.argv = tuple(argv)
        self.code = code
        self.stderr = stderr
        self.where = where
        self.out = out  # standard output up to the time limit
