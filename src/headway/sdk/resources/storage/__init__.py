"""The parts of a client about stored data: volumes, datasets, software environments, backups.

Not here: the models of their answers (`headway.schemas.storage`)."""
