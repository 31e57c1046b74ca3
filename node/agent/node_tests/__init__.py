"""Active tests of an idle node: `command` is the program, `memory`, `burn`, `copies` and `allreduce` the tests of GPUs
through the driver (`cuda_driver`, `kernels`) and NCCL (`nccl`). `results` compares their figures with the least that the
plan expects (`expects` in catalog/plans.yaml).

Not here: checks that run all the time (`node/agent/checks`)."""
