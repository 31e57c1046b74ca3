"""Measures the volumes of a running cluster: use and speed. Mount units are rendered in `render.system`."""
