"""The job of a batch. Pure.

Not here: the program that it runs (`node/batch_worker`), and its rounds (`headway.services.batches`)."""
