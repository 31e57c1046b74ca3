"""Logs of jobs: followed as they grow, or a part at a time."""
