"""Models of a cluster's nodes: what is read of them, incidents, fabric tests, rollouts of node images, rented machines.

Not here: metrics over time (`schemas.metrics`)."""
