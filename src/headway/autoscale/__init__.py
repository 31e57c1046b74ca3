"""Autoscaled groups, and the replacement of spot machines that a provider reclaims."""
