"""Use cases of clusters: state, planning, operations, activity, metrics, keys, cost limits.

Not here: data of a cluster (`services.storage`), its nodes (`services.nodes`), the work of an apply
(`headway.cluster`)."""
