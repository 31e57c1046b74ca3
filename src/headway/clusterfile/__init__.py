"""The cluster file: its model, the rules across fields, JSON Schema, and the step from a valid file to a resolved
`domain.cluster.Cluster`. No I/O. Values of one field are checked in `headway.validation`; machines' files are made in
`headway.render`."""
