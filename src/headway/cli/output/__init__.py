"""Prints answers: tables, progress, JSON, formats of values.

Not here: what is printed (`cli.commands`), wordings of the dashboard (`web.views`)."""
