"""Tables of facts from outside Headway: node plans, providers, Slurm releases, slurm.conf keys, XID codes, advisories.
Nothing here depends on a cluster; what Headway does with a fact is decided by its users, for example
`health.policy`."""
