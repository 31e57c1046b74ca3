"""Observes and changes one machine. The package is sent over SSH each time it is needed, so a machine needs only Python
3.10.

Standard input: one JSON object {"do": "observe", ...} or {"do": "apply", "steps": [...]}.

Standard output: observe prints one JSON object; apply prints a JSON line for each step as it ends, {"i": 0, "ok": true,
"s": 0.012} or {"i": 3, "ok": false, "error": "..."}, and stops at the first step that fails.

Files are written next to the target and renamed over it, so a kill at any moment leaves the old or the new file.

Not here: what the steps are (`headway.cluster`), work as a user (`node/user_helper`)."""
