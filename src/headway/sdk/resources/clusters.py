"""Clusters and the operations that change them."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterator, Mapping

from headway.domain.access.cluster_key import ClusterKey
from headway.errors import NotFound, Unreachable
from headway.schemas.access.own_limits import LimitsOut
from headway.schemas.clusters import (
    AccessOut,
    ApplyIn,
    ChangeSetOut,
    ClusterOut,
    Document,
    DownIn,
    ScaleGroupsIn,
    SlurmExportOut,
    StatusOut,
)
from headway.schemas.key_rotation import RotateIn
from headway.schemas.nodes.rollouts import RollIn
from headway.schemas.operations import EventOut, OperationOut
from headway.schemas.whatif import WhatIfIn, WhatIfOut
from headway.sdk.connection import Resource, cluster_path, path_segment
from headway.sdk.reconnect import RECONNECT_S
from headway.sdk.server_address import start_command

STOPPED_PATIENCE_S = 15.0  # a server that was stopped on purpose may be about to start again
SSE_SILENCE_S = 40.0  # the server pings open streams every 10 s


class Clusters(Resource):
    """Clusters: plan, apply, scale, roll, status."""

    def plan(self, document: Document) -> ChangeSetOut:
        """Returns what `apply` of this document would change; changes nothing."""
        return self._connection.post("/plan", ChangeSetOut, document)

    def apply(
        self, document: Document, *, digest: str = "", confirmed: bool = False, deadline_s: int | None = None
    ) -> OperationOut:
        """Queues an apply and returns its operation.

        Raises NeedsConfirmation when it disturbs running work and `confirmed` is False; Conflict when `digest` is not that of the
        current plan, or when nodes with running jobs would be removed and `deadline_s` is None."""
        name = str(document.spec.get("name") or "")
        body = ApplyIn(document=document, digest=digest, confirmed=confirmed, deadline_s=deadline_s)
        return self._connection.post(cluster_path(name, "apply"), OperationOut, body)

    def plan_scale(self, cluster: str, groups: Mapping[str, int]) -> ChangeSetOut:
        """Returns what `scale` to these numbers of nodes would change; changes nothing."""
        return self._connection.post(
            cluster_path(cluster, "scale", "plan"), ChangeSetOut, ScaleGroupsIn(groups=dict(groups))
        )

    def scale(
        self,
        cluster: str,
        groups: Mapping[str, int],
        *,
        digest: str = "",
        confirmed: bool = False,
        deadline_s: int | None = None,
    ) -> OperationOut:
        """Queues a change of the number of nodes by group ("" if there is one group). Raises the same errors as `apply`."""
        body = ScaleGroupsIn(groups=dict(groups), digest=digest, confirmed=confirmed, deadline_s=deadline_s)
        return self._connection.post(cluster_path(cluster, "scale"), OperationOut, body)

    def whatif(self, cluster: str, request: WhatIfIn) -> OperationOut:
        """Queues a what-if: the queue replayed through slurmctld with the changes of `request`. `whatif_result` returns its
        result. Raises Refused, NotFound and InvalidSpec for changes that the cluster file has no place for."""
        return self._connection.post(cluster_path(cluster, "whatif"), OperationOut, request)

    def whatif_result(self, cluster: str, operation: str) -> WhatIfOut:
        """Returns the result of a what-if. Raises NotFound if the operation has none, or no longer."""
        return self._connection.get(cluster_path(cluster, "whatif", operation), WhatIfOut)

    def whatifs(self, cluster: str) -> builtins.list[WhatIfOut]:
        """Returns the latest results of what-ifs, the newest first, without the starts of jobs."""
        return self._connection.get_list(cluster_path(cluster, "whatif"), WhatIfOut)

    def plan_roll(
        self, cluster: str, *, back: bool = False, head: bool = False, by_s: int | None = None
    ) -> ChangeSetOut:
        """Returns which nodes a roll would rebuild; changes nothing."""
        body = RollIn(back=back, head=head, by_s=by_s)
        return self._connection.post(cluster_path(cluster, "roll", "plan"), ChangeSetOut, body)

    def roll(
        self, cluster: str, *, back: bool = False, head: bool = False, by_s: int | None = None, stop: bool = False
    ) -> OperationOut:
        """Queues a rolling change of the node image: to the current one, or with `back` to the previous one.

        When the roll yields to another operation, `kept` of its final state names the operation that continues it."""
        body = RollIn(back=back, head=head, by_s=by_s, stop=stop)
        return self._connection.post(cluster_path(cluster, "roll"), OperationOut, body)

    def down(self, cluster: str, *, delete_data: bool = False) -> OperationOut:
        """Queues taking the cluster down; `delete_data` also deletes home, scratch and accounting."""
        return self._connection.post(cluster_path(cluster, "down"), OperationOut, DownIn(delete_data=delete_data))

    def rotate_key(self, cluster: str, what: ClusterKey) -> OperationOut:
        """Queues the replacement of one of the cluster's keys."""
        return self._connection.post(cluster_path(cluster, "keys", "rotate"), OperationOut, RotateIn(what=what))

    def list(self) -> builtins.list[ClusterOut]:
        """Returns every cluster that this person may see."""
        return self._connection.get_list("/clusters", ClusterOut)

    def get(self, cluster: str) -> ClusterOut:
        """Returns one cluster. Raises NotFound."""
        return self._connection.get(cluster_path(cluster), ClusterOut)

    def status(self, cluster: str) -> StatusOut:
        """Returns readiness checks and nodes."""
        return self._connection.get(cluster_path(cluster, "status"), StatusOut)

    def limits(self, cluster: str) -> LimitsOut:
        """Returns this person's own limits, and what they use of them."""
        return self._connection.get(cluster_path(cluster, "limits"), LimitsOut)

    def document(self, cluster: str) -> Document:
        """Returns the document that was applied last."""
        return Document.model_validate(self._connection.request_json("GET", cluster_path(cluster, "document")))

    def ssh_access(self, cluster: str) -> AccessOut:
        """Returns what plain ssh needs to reach the cluster's login as this person."""
        return self._connection.get(cluster_path(cluster, "access"), AccessOut)

    def slurm_export(self, cluster: str) -> SlurmExportOut:
        """Returns plain Slurm files of the cluster, which run without Headway."""
        return self._connection.get(cluster_path(cluster, "slurm-export"), SlurmExportOut)

    def only_name(self) -> str:
        """Returns the name of the only cluster. Raises NotFound if there is not exactly one."""
        names = [c.name for c in self.list()]
        if len(names) == 1:
            return names[0]
        if not names:
            raise NotFound("no cluster exists yet", hint="headway init, then headway apply")
        raise NotFound(f"there are {len(names)} clusters: {', '.join(names)}", hint="give one of them")


class Operations(Resource):
    """Long-running operations: their progress and results."""

    def get(self, operation: str) -> OperationOut:
        """Returns one operation."""
        return self._connection.get(f"/operations/{path_segment(operation)}", OperationOut)

    def list(self, cluster: str = "") -> builtins.list[OperationOut]:
        """Returns operations, latest first, at most 50."""
        return self._connection.get_list("/operations", OperationOut, params={"cluster": cluster} if cluster else None)

    def events(
        self,
        operation: str,
        *,
        after: int = 0,
        patience_s: float = RECONNECT_S,
        on_lost: Callable[[], None] | None = None,
    ) -> Iterator[EventOut]:
        """Yields the operation's progress after event `after` until the operation has finished; `get` then returns its result.

        Reconnects for up to `patience_s` after each lost connection, then raises Unreachable. `on_lost` is called once for each
        loss (it may start the server), but not when the server was stopped on purpose."""
        last_seq = after
        lost: tuple[float, Unreachable] | None = None  # deadline for reconnecting, and the first error
        while True:
            stopped = False
            try:
                for kind, event in self._event_stream(operation, last_seq):
                    lost = None
                    if kind == "end":
                        return
                    if kind == "stopping":
                        stopped = True
                        break
                    if event is not None:
                        last_seq = event.seq
                        yield event
                error = Unreachable(
                    "the server was stopped; the operation continues when it starts again", hint=start_command()
                )
            except Unreachable as caught:
                error = caught
            if lost is None:
                wait_s = min(patience_s, STOPPED_PATIENCE_S) if stopped else patience_s
                lost = (time.monotonic() + wait_s, error)
                if on_lost is not None and not stopped:
                    on_lost()
            if time.monotonic() > lost[0]:
                raise lost[1]
            time.sleep(0.2)
            self._connection.reconnect()

    def wait(self, operation: str, *, patience_s: float = RECONNECT_S) -> OperationOut:
        """Waits for the operation and returns its final state."""
        for _ in self.events(operation, patience_s=patience_s):
            pass
        return self.get(operation)

    def _event_stream(self, operation: str, after: int) -> Iterator[tuple[str, EventOut | None]]:
        """Yields ("open", None), ("progress", event)..., then ("end", None) when the operation has finished, or ("stopping",
        None) when the server is shutting down."""
        params = {"after": str(after)} if after else None
        with self._connection.stream(f"/operations/{path_segment(operation)}/events", params, SSE_SILENCE_S) as answer:
            yield "open", None
            kind = ""
            data: list[str] = []
            for line in answer.iter_lines():
                field, _, value = line.partition(":")
                if field == "event":
                    kind = value.strip()
                elif field == "data":
                    data.append(value.removeprefix(" "))
                elif not line and kind:
                    text = "\n".join(data)
                    yield kind, EventOut.model_validate_json(text) if kind == "progress" else None
                    kind, data = "", []
