"""Active tests of an idle node: `command` is the program, `memory`, `burn`, `copies` and `allreduce` the tests of GPUs through
the driver (`cuda_driver`, `kernels`) and NCCL (`nccl`). What a node checks all the time, also while jobs run, belongs to
`agent.checks`."""
