"""Reads logs of jobs: follows them as they grow, returns parts, searches."""
