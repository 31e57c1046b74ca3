"""Calls about jobs and commands of users on clusters, and the secrets that jobs get.

Not here: what they do on the head (`headway.jobs`)."""
