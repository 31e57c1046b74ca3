"""cluster.yaml: its model, its rules, and the step from a valid file to a resolved `domain.cluster.Cluster`. No I/O.
`headway.render` makes the machines' files from the resolved cluster."""
