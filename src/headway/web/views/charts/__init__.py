"""Charts and graphs that the server draws or prepares: axes, lines, bars, heat maps, graphs of steps.

Not here: the data (`headway.services`), and drawing in the browser (`web/static`)."""
