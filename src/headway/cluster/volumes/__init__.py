"""Volumes of a working cluster: how full and how fast they are."""
