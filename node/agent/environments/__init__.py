"""Software environments on this node: copies of them on its disk, and their files in memory."""
