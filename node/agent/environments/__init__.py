"""Software environments on this node: copies of them on its disk, and their files in memory.

Not here: the shared folder of versions (`node/programs/environment_store.py`)."""
