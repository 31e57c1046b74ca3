"""Use cases of notebooks: start, list and end them, and who may open one in a browser.

Not here: the job that runs JupyterLab (`headway.jobs`), the proxy for browsers (`headway.server`)."""
