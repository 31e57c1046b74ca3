"""Chooses which slots of a group have a machine, creates machines for slots, and drains and deletes machines.
Autoscaling is in `headway.autoscale`."""
