"""Use cases of clusters: state, planning, operations, activity, metrics, keys, cost limits. Data of a cluster is in
`headway.services.storage`, its nodes are in `headway.services.nodes`."""
