"""Implements the Protocols of `services.cluster_backend`, one module per Protocol. It chooses the connection or lock
that a call needs, keeps connections open between calls, and then calls `headway.cluster`, `headway.health`,
`headway.jobs`, `headway.rollout`, `headway.backup` or `headway.slurm`.

Not here: rules (the called packages), the kinds of operations (`server.operations`)."""
