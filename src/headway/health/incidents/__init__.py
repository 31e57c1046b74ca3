"""Handling of one incident from its first symptom to the node's return: one module per step, called by `engine`."""
