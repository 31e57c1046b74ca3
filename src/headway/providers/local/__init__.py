"""Machines of the provider `local`: podman system containers on this host, with simulated GPUs."""
