"""The commands, one folder per theme of `headway --help`. A command reads its options, calls `headway.sdk` and prints
the answer.

Not here: shared options (`cli.options`), tables and formats (`cli.output`)."""
