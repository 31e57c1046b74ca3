"""Tables of facts from outside Headway: node plans, providers, Slurm releases, slurm.conf keys, XID codes, advisories.

Not here: what depends on a cluster, and what Headway does with a fact (its users, for example `health.policy`)."""
