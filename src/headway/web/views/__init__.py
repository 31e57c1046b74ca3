"""Turns a snapshot and answers of `headway.services` into the values that a template shows. Pure."""
