"""Checks and tests of a node, and what they read."""
