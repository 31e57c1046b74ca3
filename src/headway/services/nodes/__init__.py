"""Use cases of a cluster's nodes: details and actions of operators, incidents, fabric tests, rollouts of node images.

Not here: decisions about repairs (`headway.health`), the roll itself (`headway.rollout`)."""
