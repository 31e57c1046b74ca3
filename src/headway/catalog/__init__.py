"""Tables of what exists outside Headway, as data: node plans, XID codes, advisories, slurm.conf keys, Slurm releases and their
features. No cluster and no file of a user's."""
