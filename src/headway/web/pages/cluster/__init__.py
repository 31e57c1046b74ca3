"""Pages of a cluster: overview, nodes, incidents, events, storage, scaling, operations, cluster file."""
