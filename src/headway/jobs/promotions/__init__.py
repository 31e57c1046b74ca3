"""Promotions of models: the file with the gates, when each is passed, and the statement about the model. Pure.

Not here: MLflow's registry and the rounds of a promotion (`services.models`)."""
