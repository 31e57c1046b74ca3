"""Pages of costs and teams."""
