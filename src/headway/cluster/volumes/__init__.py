"""Volumes of a running cluster: how full and how fast they are."""
