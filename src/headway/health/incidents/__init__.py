"""Leads an incident from its first symptom to the node's return to service. `engine` calls one module per step.

Not here: the order of repair steps (`health.policy`)."""
