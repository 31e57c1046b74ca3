"""Leads an incident from its first symptom to the node's return to service. `engine` calls one module per step; the
order of repair steps is decided in `health.policy`."""
