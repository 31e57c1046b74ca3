"""Stores the files of dataset versions, each content once under its SHA-256, (`file_store`), and imports
them from a folder or from S3 (`import_files`).

Not here: rules of datasets, such as free names and pinned versions (`services.storage`), volumes
(`cluster.volumes`)."""
