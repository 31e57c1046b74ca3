"""From a snapshot to the values that a page shows. Pure."""
