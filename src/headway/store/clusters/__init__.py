"""Stored data about clusters: cluster files, secrets, operations, incidents, datasets, activity.

Not here: usage and cost (`store.billing`), jobs (`store.jobs`)."""
