"""Starts processes and opens SSH connections: `process` is the only module that starts local processes, `ssh` and
`connect` the only ones that open SSH.

Not here: which commands run (the callers), programs that are sent to machines (`node/programs`)."""
