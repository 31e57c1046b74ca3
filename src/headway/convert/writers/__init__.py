"""Writers of job files: one module a format, and the pods that both Kubernetes formats have.

Not here: the reading of job files (convert/readers)."""
