"""cluster.yaml: its model, its rules, and the step from a valid file to a resolved `domain.cluster.Cluster`. Pure. What the
machines get of it is rendered in `headway.render`."""
