"""Machines that the user owns: claims, release, and machines in system containers on other hosts."""
