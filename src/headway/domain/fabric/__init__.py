"""What a fabric test measures and finds, and the network of the nodes that it compares. Pure.

Not here: the rounds of a test and the judgement (`health.policy`)."""
