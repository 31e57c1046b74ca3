"""What a fault means and what should be done about it. Pure."""
