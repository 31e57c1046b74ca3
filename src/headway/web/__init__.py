"""The dashboard: pages, templates, live updates."""
