"""Incidents, nodes, faults."""
