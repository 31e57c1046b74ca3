"""Clusters of owned machines with groups that are rented from a cloud. Not here: owned machines (providers/ssh) and rented ones
(providers/cloud) themselves."""
