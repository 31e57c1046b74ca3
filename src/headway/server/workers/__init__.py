"""Loops that run as long as the server does."""
