"""Converts job files between schedulers: `headway convert`. Pure.

`readers`: one module a format, each fills a `Job` (job_description). `writers`: one module a format, each writes a `Job`.
Every directive and field of a file is carried, or is in the list of losses.

Not here: mistakes in batch scripts (lint)."""
