"""Logs of jobs: followed as they grow, or read in parts."""
