"""Node images of local machines: what they are made from, how they are built, and podman, which keeps them."""
