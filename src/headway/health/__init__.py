"""Faults of nodes and jobs: finds them, decides what to do, and repairs.

Not here: autoscaling (`headway.autoscale`), the rollout of node images (`headway.rollout`), checks on nodes
(`node/agent/checks`)."""
