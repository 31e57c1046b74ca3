"""Runs commands: `process` is the only module that starts local processes, `ssh` the only one that runs commands on
machines."""
