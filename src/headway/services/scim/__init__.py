"""Use cases of SCIM 2.0: an identity provider adds, changes and removes people and groups.

Not here: what people get from their groups (`services.access.provider_people`), the endpoints
(`api.routers.access`)."""
