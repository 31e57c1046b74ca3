"""Batch scripts before they are submitted: what lint finds with what is known of a cluster, and the conversion of job
files of other schedulers.

Not here: the rules of lint (`headway.lint`), the formats (`headway.convert`)."""
