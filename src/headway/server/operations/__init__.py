"""Runs operations (apply, down, roll, backup, ...), one module per subject. `server.workers` claims an operation;
`domain.operation_kinds` declares the kinds."""
