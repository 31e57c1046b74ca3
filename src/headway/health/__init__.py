"""Faults of nodes and jobs: finds them, decides what to do, and repairs. Autoscaling is in `headway.autoscale`, the
rollout of node images in `headway.rollout`."""
