"""Checks on a machine with real GPUs: `python3 node/gpu_proof` (`make gpu-proof`).

Not here: tests of the nodes of a cluster (`node/agent/node_tests`)."""
