"""Compares the desired with the observed state and returns a ChangeSet. Pure.

Not here: reading facts and carrying a ChangeSet out (`headway.cluster`), the desired files (`headway.render`)."""
