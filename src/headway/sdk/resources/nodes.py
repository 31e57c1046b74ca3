"""Single nodes, their tests and injected faults."""

from __future__ import annotations

from headway.schemas.nodes.fabric_tests import FabricTestIn, FabricTestOut
from headway.schemas.nodes.incidents import FaultIn, InjectedFaultOut, NodeHistoryOut
from headway.schemas.nodes.nodes import DoneOut, DrainIn, NodeActionOut, NodeDetailOut, NodeTestIn, RebootIn
from headway.schemas.nodes.rentals import RentedOut
from headway.schemas.operations import OperationOut
from headway.sdk.connection import Resource, cluster_path


class Nodes(Resource):
    """Single nodes: drain, return, reboot, test."""

    def history(self, cluster: str, node: str) -> NodeHistoryOut:
        """Returns a node's incidents and its fault score."""
        return self._connection.get(cluster_path(cluster, "nodes", node, "history"), NodeHistoryOut)

    def rented(self) -> RentedOut:
        """Returns everything that the server rents from clouds, of all clusters."""
        return self._connection.get("/rented", RentedOut)

    def get(self, cluster: str, node: str) -> NodeDetailOut:
        """Returns one node, with its last reboot or test."""
        return self._connection.get(cluster_path(cluster, "nodes", node), NodeDetailOut)

    def drain(self, cluster: str, node: str, reason: str) -> DoneOut:
        """Drains the node: no new job starts on it, running jobs continue."""
        return self._connection.post(cluster_path(cluster, "nodes", node, "drain"), DoneOut, DrainIn(reason=reason))

    def return_to_service(self, cluster: str, node: str) -> DoneOut:
        """Returns the node to service, after its tests when an incident is open. Raises Conflict when a test fails."""
        return self._connection.post(cluster_path(cluster, "nodes", node, "return"), DoneOut, timeout_s=330)

    def reboot(self, cluster: str, node: str, *, busy: bool = False) -> NodeActionOut:
        """Starts a reboot; `get` shows its result. `busy` allows it while jobs run."""
        return self._connection.post(cluster_path(cluster, "nodes", node, "reboot"), NodeActionOut, RebootIn(busy=busy))

    def test(self, cluster: str, node: str, *, hard: bool = False) -> NodeActionOut:
        """Starts the node's tests; `get` shows their results. `hard` adds the tests that need an idle node."""
        return self._connection.post(cluster_path(cluster, "nodes", node, "test"), NodeActionOut, NodeTestIn(hard=hard))

    def test_fabric(self, cluster: str, nodes: str = "") -> OperationOut:
        """Queues a fabric test of these nodes (a Slurm host list), or of all idle ones. `fabric_test` returns its
        result."""
        return self._connection.post(cluster_path(cluster, "fabric-test"), OperationOut, FabricTestIn(nodes=nodes))

    def fabric_test(self, cluster: str) -> FabricTestOut:
        """Returns the result of the latest fabric test. Raises NotFound if there was none."""
        return self._connection.get(cluster_path(cluster, "fabric-test"), FabricTestOut)

    def inject_fault(self, cluster: str, fault: FaultIn) -> InjectedFaultOut:
        """Injects a fault into a local cluster, or removes it."""
        return self._connection.post(cluster_path(cluster, "faults"), InjectedFaultOut, fault, timeout_s=120)
