"""Implements the Protocols of `services.cluster_backend`, one module per Protocol. It chooses the connection or lock
that a call needs, keeps connections open between calls, and then calls `headway.cluster`, `headway.health`,
`headway.jobs`, `headway.rollout`, `headway.backup` or `headway.slurm`, where the rules are. Requests reach it through
`headway.services`; the kinds of operations are in `server.operations`."""
