"""Node images of local machines: their recipes, how they are built, and podman, which stores them."""
