"""The provider `local`: machines are podman system containers on the server's host, with simulated GPUs."""
