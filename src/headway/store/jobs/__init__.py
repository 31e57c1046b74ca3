"""What the server remembers of submitted jobs, pipelines and notebooks."""
