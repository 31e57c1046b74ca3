"""Who sends a request, and how a browser signs in."""
