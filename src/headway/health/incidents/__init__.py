"""One incident from its first signal to the node's return: a module a step, led by `engine`."""
