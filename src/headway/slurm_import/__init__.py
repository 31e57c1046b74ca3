"""Reads the configuration of a Slurm site and makes a cluster file of it, with one verdict for each key and line read.

Pure: texts in, texts out. Not here: reading the folder or the head (`headway.sdk.slurm_site`) and the command
(`headway.cli.commands.cluster.import_site`)."""
