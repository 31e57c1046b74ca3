"""Frozen types that all packages share: clusters, machines, changes, jobs, incidents.

Not here: I/O, and rules that need more than the values themselves (the package of the rule, such as
`headway.billing`)."""
