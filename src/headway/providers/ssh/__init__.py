"""Machines of the provider `ssh`: hosts that the user owns, listed in cluster.yaml."""
