"""Tables of facts from outside Headway, as data: node plans, XID codes, advisories, slurm.conf keys, Slurm releases and
their features. Nothing here depends on a cluster or a user's file."""
