"""Node images for the provider `local`: their recipes, their build, and podman, which stores them. Rolling a new image
out is in `headway.rollout`."""
