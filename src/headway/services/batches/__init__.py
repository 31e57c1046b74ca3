"""Batches: their start and what people ask of them, and the rounds that follow their jobs.

Not here: the work on rows, which workers on the nodes divide among themselves (`node/batch_worker`)."""
