"""The provider `local`: machines are podman system containers on the server's host, with simulated GPUs.

Not here: the node image that they run (`headway.images`)."""
