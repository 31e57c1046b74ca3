"""Readers of job files: one module a format, and the modules that several of them share.

Not here: which format a file has (convert/formats), and the writing of a job (convert/writers)."""
