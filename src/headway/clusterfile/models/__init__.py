"""Models of the cluster file as people write it, one module per section. Each checks its fields by themselves.
A default stands in the model of its section; if code uses the resolved type without a file too (`domain.billing.cost_settings`),
the default stands there and the model takes it.

Not here: rules across fields (`clusterfile.rules`), the resolved cluster (`domain.cluster`)."""
