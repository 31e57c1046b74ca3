"""An error of NCCL ends one all-reduce, and leaves the library ready for the next."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agent.node_tests import nccl
from agent.node_tests.results import NodeTestFailed


class Library:
    """libnccl as far as errors and open groups go. `fails`: the call that returns an error."""

    def __init__(self, fails: str) -> None:
        self.fails, self.open_groups, self.destroyed = fails, 0, 0

    def __getattr__(self, name: str) -> Any:
        def call(*words: Any) -> Any:
            if name == "ncclGetErrorString":
                return b"unhandled system error"
            self.open_groups += {"ncclGroupStart": 1, "ncclGroupEnd": -1}.get(name, 0)
            self.destroyed += name == "ncclCommDestroy"
            if name == "ncclCommInitRank" and name != self.fails:
                words[0]._obj.value = 7
            return 2 if name == self.fails else 0

        if not name.startswith("nccl"):
            raise AttributeError(name)
        return call


class Device:
    stream = None

    def activate(self) -> None:
        """Does nothing: no GPU is used."""


@pytest.mark.parametrize(
    ("fails", "destroyed"), [("ncclCommInitRank", 0), ("ncclAllReduce", 2), ("ncclGroupEnd", 2), ("", 2)]
)
def test_no_group_of_calls_stays_open_after_an_error(fails: str, destroyed: int) -> None:
    library = nccl.Nccl.__new__(nccl.Nccl)
    library._library = made = cast(Any, Library(fails))
    devices = cast(Any, [Device(), Device()])

    def measure() -> None:
        with library.communicators(devices, bytes(128), 2, 0) as group:
            library.all_reduce(devices, [0, 0], 1, group)

    if fails:
        with pytest.raises(NodeTestFailed, match=fails):
            measure()
    else:
        measure()
    assert (made.open_groups, made.destroyed) == (0, destroyed)
