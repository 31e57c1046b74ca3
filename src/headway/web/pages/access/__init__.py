"""Pages of sign-in, people, tokens, audit trail, and settings.

Not here: sign-in itself (`api.auth`), teams and their usage (`web.pages.billing`)."""
