"""Each kind of operation has wording, parameters and a handler."""

from __future__ import annotations

import pytest

from headway.domain.operation_kinds import (
    ApplyParams,
    DatasetParams,
    OperationKind,
    OperationParams,
    RollParams,
    ScaleParams,
    own_secret,
)
from headway.server.operations.registry import HANDLERS


def _kinds_with_parameters(base: type[OperationParams]) -> set[OperationKind]:
    found = {subclass.kind for subclass in base.__subclasses__()}
    return found.union(*(_kinds_with_parameters(subclass) for subclass in base.__subclasses__()))


@pytest.mark.parametrize("kind", OperationKind)
def test_every_operation_kind_has_wording_parameters_and_handler(kind: OperationKind) -> None:
    assert kind.heading
    assert kind.activity
    assert "lab" in kind.success("lab")
    assert kind in _kinds_with_parameters(OperationParams)
    assert kind in HANDLERS


def test_operation_params_round_trip_json_and_ignore_unknown_fields() -> None:
    params = ScaleParams(confirmed=True, scale={"main": 3}, until=7.0, nodes=["lab-1-1"], instead=[])
    assert ScaleParams.from_json(params.to_json()) == params
    assert ApplyParams.from_json(params.to_json()).continues
    assert not ApplyParams.from_json({"confirmed": True}).continues
    assert RollParams.from_json({"back": True, "of_a_newer_server": 1}) == RollParams(back=True)


def test_operation_kinds_map_to_secret_names_and_audit_actions() -> None:
    assert own_secret("backup", {"ref": "r1"}) == "backup_key/r1"
    assert own_secret("apply", {"ref": "r1"}) == own_secret("dataset", {}) == ""
    assert OperationKind.DATASET.audit_action(DatasetParams("add", "tiny").to_json()) == "dataset.add"
    assert OperationKind.ROTATE.audit_action({}) == "keys.rotate"
    assert OperationKind.DOWN.audit_action({}) == "down"
