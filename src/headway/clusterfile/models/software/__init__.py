"""Sections of the cluster file about the software of jobs: containers, environments, sources of packages.

Not here: NVIDIA's driver (`clusterfile.models.gpu_driver`)."""
