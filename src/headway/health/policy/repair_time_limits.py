"""How long the steps of a repair may take, in seconds."""

from __future__ import annotations

JOBS_START_S = 20.0  # a requeued job starts on the spare before its old node is repaired
RESET_S = 120.0  # a GPU reset
BOOT_S = 180.0  # from the start of a machine until it has registered
REPLACE_S = 600.0  # the same for a machine that has to be created
RESTART_S = 1800.0  # a physical server tests its memory and starts, or a person switches it on
