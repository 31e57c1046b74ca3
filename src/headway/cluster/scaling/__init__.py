"""Chooses which slots of a group have a machine, creates machines for slots, and drains and deletes machines.

Not here: autoscaling (`headway.autoscale`)."""
