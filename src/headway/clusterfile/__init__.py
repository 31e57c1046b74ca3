"""The cluster file: its model, the rules across fields, JSON Schema, and the step from a valid file to a resolved
`domain.cluster.Cluster`. No I/O.

Not here: parsing of YAML and of single values (`headway.validation`), the files of machines (`headway.render`)."""
