"""Starts processes and opens SSH connections: `process` is the only module that starts local processes, `ssh` and
`connect` the only ones that open SSH. Which commands run is decided by the callers."""
