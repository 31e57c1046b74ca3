"""Pages of a cluster: overview, nodes, incidents, storage, scaling, operations."""
