"""Faults of nodes and jobs: detection, policy, incidents. Scaling is in `headway.autoscale`, node images in `headway.rollout`."""
