"""Actions on nodes: of people, of fabric tests and of rollouts."""
