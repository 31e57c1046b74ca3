"""The difference between the desired and the present state, as a ChangeSet. Pure: facts come from
`headway.cluster.observe`, and `headway.cluster.apply` carries a ChangeSet out."""
