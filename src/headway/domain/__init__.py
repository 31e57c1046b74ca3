"""Frozen types that all packages share: clusters, machines, changes, jobs, incidents. No I/O; a rule is here only if it
needs nothing but the values themselves."""
