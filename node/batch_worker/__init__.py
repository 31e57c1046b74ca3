"""The worker of a batch, which runs on nodes as a task of a Slurm array: it takes shards of rows, has a program or an HTTP server
compute their results, and commits each shard once. Its state is files in a folder that all nodes share.

Not here: the submission of the array, and the dataset version that the results become (`headway.services.batches`)."""
