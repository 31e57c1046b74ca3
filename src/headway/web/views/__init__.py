"""Turns a snapshot and answers of `headway.services` into the values that a template shows. Pure.

Not here: routes (`web.pages`), reading data (`headway.services`)."""
