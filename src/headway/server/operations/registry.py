"""Maps each kind of operation to its handler."""

from __future__ import annotations

from collections.abc import Mapping

from headway.domain.operation_kinds import OperationKind
from headway.server.operations.apply import apply_cluster
from headway.server.operations.backups import back_up_cluster, restore_cluster
from headway.server.operations.datasets import change_dataset
from headway.server.operations.environments import change_environment
from headway.server.operations.fabric_test import test_fabric
from headway.server.operations.key_rotation import rotate_key
from headway.server.operations.operation_run import Handler
from headway.server.operations.replacement import replace_machine
from headway.server.operations.rollouts import roll_cluster
from headway.server.operations.teardown import take_down
from headway.server.operations.whatif import replay_queue

HANDLERS: Mapping[OperationKind, Handler] = {
    OperationKind.APPLY: apply_cluster,
    OperationKind.SCALE: apply_cluster,
    OperationKind.DOWN: take_down,
    OperationKind.BACKUP: back_up_cluster,
    OperationKind.RESTORE: restore_cluster,
    OperationKind.ROTATE: rotate_key,
    OperationKind.DATASET: change_dataset,
    OperationKind.ENVIRONMENT: change_environment,
    OperationKind.ROLL: roll_cluster,
    OperationKind.REPLACE: replace_machine,
    OperationKind.FABRIC_TEST: test_fabric,
    OperationKind.WHATIF: replay_queue,
}
