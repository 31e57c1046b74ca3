"""Runs before and after the command of a pipeline's step, in the step's batch script, as the user: reads the outputs of earlier
steps, decides whether the step is skipped or cached, and records its own outputs. Works while Headway's server is down.

Not here: the pipeline file, and the plan that these programs get (`headway.jobs.pipelines`)."""
