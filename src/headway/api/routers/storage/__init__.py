"""Routes of what a cluster stores: volumes with their quotas, datasets, environments.

Not here: their behaviour (`services.storage`)."""
