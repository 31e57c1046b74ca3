"""The folders and volumes that machines mount, their space and quotas.

Not here: versions of datasets (`domain.dataset`) and of software environments (`domain.environment`)."""
