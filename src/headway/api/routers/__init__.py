"""Endpoints, one module per resource."""
