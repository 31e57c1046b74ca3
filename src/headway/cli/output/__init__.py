"""Printing answers: tables, progress, formats of values. No command is here."""
