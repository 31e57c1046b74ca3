"""Use cases of a cluster's nodes: details and actions of operators, incidents, fabric tests, rollouts of node images. What
decides about repairs is in `headway.health`, the roll itself in `headway.rollout`."""
