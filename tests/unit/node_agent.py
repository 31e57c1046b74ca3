"""The agent's modules, imported as the program on a machine imports them."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path

NODE = Path(__file__).parents[2] / "node"

_spec = importlib.util.spec_from_file_location(
    "agent", NODE / "agent" / "__init__.py", submodule_search_locations=[str(NODE / "agent")]
)
assert _spec is not None
assert _spec.loader is not None
sys.modules["agent"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["agent"])

active = import_module("agent.active")
check_gpu = import_module("agent.check_gpu")
check_node = import_module("agent.check_node")
checks = import_module("agent.checks")
config = import_module("agent.config")
dcgm = import_module("agent.dcgm")
gpu = import_module("agent.gpu")
head = import_module("agent.head")
held = import_module("agent.held")
inherit = import_module("agent.inherit")
job = import_module("agent.job")
kernel = import_module("agent.kernel")
lease = import_module("agent.lease")
machine = import_module("agent.machine")
metrics = import_module("agent.metrics")
node = import_module("agent.node")
nvml = import_module("agent.nvml")
orphans = import_module("agent.orphans")
rapl = import_module("agent.rapl")
recall = import_module("agent.recall")
register = import_module("agent.register")
rekey = import_module("agent.rekey")
reports = import_module("agent.reports")
room = import_module("agent.room")
simulated = import_module("agent.simulated")
turns = import_module("agent.turns")
watch = import_module("agent.watch")
watcher = import_module("agent.watcher")
