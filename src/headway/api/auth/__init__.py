"""Authentication of requests, and browser sign-in."""
