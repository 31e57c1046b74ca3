"""Use cases that the API and the web pages share: identity, planning, submission, the snapshot of each cluster. No HTTP
here."""
