"""Calls about nodes: actions of people, fabric tests and rollouts.

Not here: what they do on nodes (`health.incidents`, `headway.rollout`)."""
