"""Use cases of clusters: state, planning, operations, activity, metrics, keys, cost limits. Data of a cluster is in `services.storage`,
its nodes are in `services.nodes`."""
