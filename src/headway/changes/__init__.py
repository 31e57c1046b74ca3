"""Compares the desired with the observed state and returns a ChangeSet. Pure: `cluster.observe` reads the facts,
`headway.render` makes the desired files, and `cluster.apply` carries a ChangeSet out."""
