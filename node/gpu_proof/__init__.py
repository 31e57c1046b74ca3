"""Checks on a machine with real GPUs: `python3 node/gpu_proof` (`make gpu-proof`)."""
