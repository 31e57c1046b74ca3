"""Runs operations (apply, down, roll, backup, ...), one module per subject.

Not here: claiming an operation (`server.workers`), the list of kinds (`domain.operation_kinds`)."""
