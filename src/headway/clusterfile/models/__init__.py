"""Models of the cluster file as people write it, one module per section. Each checks its fields by themselves.

Not here: rules across fields (`clusterfile.rules`), the resolved cluster (`domain.cluster`)."""
