"""Measures the volumes of a running cluster: use, quotas and speed.

Not here: mount units (`render.system`), datasets (`headway.datasets`)."""
