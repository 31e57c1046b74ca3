"""Checks of the observed machines before an apply: what refuses the apply and what only causes a warning. Pure.

Not here: checks of the cluster file alone (`headway.clusterfile`), tests of nodes (`node/agent/node_tests`)."""
