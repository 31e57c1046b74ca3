"""Shapes of requests and answers about people, their roles, and tokens."""
