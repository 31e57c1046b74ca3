"""The difference between what should be and what is there, as a ChangeSet. Pure: facts come from `headway.cluster.observe`,
`headway.cluster.apply` carries a ChangeSet out."""
