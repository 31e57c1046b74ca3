"""Jobs and commands of users on clusters, and the secrets that jobs get."""
