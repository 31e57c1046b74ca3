"""Shapes of models: layers, widths, experts; of known models, sizes and config.json. Pure.

Not here: how a model is trained or served (sizing)."""
