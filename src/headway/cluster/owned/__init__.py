"""Machines that the user owns: claims, release, and machines in system containers on other hosts.

Not here: which host has which slot (`providers.ssh`)."""
