"""Node images for the provider `local`: their recipes, their build, and podman, which stores them.

Not here: rolling an image out (`headway.rollout`), container images of jobs (`node/image`)."""
