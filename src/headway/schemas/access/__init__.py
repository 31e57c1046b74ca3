"""Models of people, their roles and limits, tokens, and SCIM messages.

Not here: who may do what (`services.access`)."""
