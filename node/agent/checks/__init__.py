"""Checks that run all the time, also while jobs run: kernel log, GPUs, disks, volumes, settings of the host.

Not here: tests of an idle node (`node/agent/node_tests`), what follows from a symptom (`health.policy`)."""
