"""Nodes, incidents, faults."""
