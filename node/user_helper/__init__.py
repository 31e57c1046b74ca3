"""Carries out one request as a user on the head: a command, sbatch with a script, or reading a job's log.

Headway sends the whole package as the text of `python3 -c` (headway.transport.remote_program), with one JSON argument.
It starts as root and drops root for good before it opens a file or starts a program of the user. It needs only the
standard library and Python 3.9 or newer.

Not here: the requests themselves (`headway.jobs`), work as root (`node/ops`, `node/programs`).

  {"do": "exec",   "user": ..., "argv": [...], "cwd": ""}
      replaces itself by the command
  {"do": "run",    "user": ..., "argv": [...]}
      runs the command with streamed output, also as root; ends it on SIGTERM and when its output is no longer read
  {"do": "sbatch", "user": ..., "args": [...], "cwd": "", "script_name": ..., "script_args": [...], "has_script": true}
      submits the script on standard input. "stage": {"root", "bundle", "work", "files": {path: text}} first copies a bundle for
      the job and writes missing small files; "env": {...} is set for sbatch
  {"do": "bundle", "user": ..., "root": ..., "digest": ...}
      stores the tar archive on standard input as a read-only folder named by the digest of its content, unless it exists;
      prints {"present": bool}; with empty standard input it only checks
  {"do": "follow", "user": ..., "path": ..., "offset": 0}
      writes frames to standard output until it is ended: a line "D SIZE" and SIZE bytes of data, a line "T" when the file was
      truncated or replaced, a line "W" while the file is missing
  {"do": "read",   "files": [{"user", "path", "offset", "limit"}], "reports": [{"job", "offset", "limit"}]}
      prints one JSON line for each file, then one for each report: {"size", "offset", "b64"} or {"error"}; the reports are those
      that the agent stores (node/agent)
  {"do": "search", "user": ..., "path": ..., "text": ..., "most": 100}
      prints one JSON object with up to `most` lines of the file that contain the text
  {"do": "terminal", "user": ..., "argv": [...], "rows": 24, "columns": 80}
      runs the command on a pseudo-terminal, also as root, with keys and sizes in frames (terminal.py) on standard input
  {"do": "tunnel", "user": ..., "path": ...}
      connects standard input and output, in frames (tunnel.py), to this Unix socket of the user
  {"do": "serve",  "user": ...}
      answers "sbatch" requests of this user (with user "": "read" requests for any user) one after another, until standard
      input ends or no request has come for IDLE_S. Prints a line "ready". A request is a line {"ask": {...}, "size": n} and n
      bytes for its standard input. When the request starts, a line "begun" is printed; the answer is a line
      {"code", "out", "err"} and as many bytes of both outputs

Exits with 97 and one sentence on standard error if the user or the folder can't be used.
"""
