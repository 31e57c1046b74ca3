"""Why a job waits and what would start it, in plain words. Pure."""
