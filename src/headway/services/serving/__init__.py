"""Services of people: their start and what people ask of them, and the rounds that carry them out.

Not here: the file and the decisions (`headway.jobs.serving`)."""
