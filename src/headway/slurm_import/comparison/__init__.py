"""Compares a site with the cluster that was made of it: their configuration, partitions, nodes, accounts, QOS and fair
shares side by side, each difference with its reason.

Not here: reading them (`headway.sdk.slurm_site`), verdicts on keys (`headway.slurm_import.importer`)."""
