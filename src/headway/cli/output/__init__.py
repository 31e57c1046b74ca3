"""Prints answers: tables, progress, JSON, formats of values. Commands are in `cli.commands`."""
