"""How many GPUs a model needs, for how long: memory by part, step time, the layout that fits and is fastest. Pure, standard
library only.

`data`: published measurements, and the parameters that are fitted to them (tools/fit_step_time.py).

Not here: facts about GPUs (catalog/gpu_types.py), prices (billing), `headway size` itself (cli/commands/billing/size.py)."""
