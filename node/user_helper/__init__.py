"""Does one thing as a person on the head: a command, sbatch with a script, or reading a job's log.

Headway sends the whole package as the text of `python3 -c` (headway.transport.remote_program), with one JSON argument; it runs as
root and gives up root for good before it touches anything of the person's. Only the standard library, Python 3.9 or newer.

  {"do": "exec",   "user": ..., "argv": [...], "cwd": ""}          becomes the command; its output and code are its own
  {"do": "run",    "user": ..., "argv": [...]}                     the same, root too, for somebody who watches: ended
                    when nobody reads its output any more, and by SIGTERM
  {"do": "sbatch", "user": ..., "args": [...], "cwd": "", "script_name": ..., "script_args": [...], "has_script": true}
                    standard input is the script; with "stage": {"root", "bundle", "work", "files": {path: text}} the person's
                    copy of a bundle is made first, and small files that are missing; "env": {...} is set for sbatch
  {"do": "bundle", "user": ..., "root": ..., "digest": ...}         keeps the tar archive on standard input as a read-only
                    folder named by its content, unless it is there; prints {"present": bool}, asks only when it is empty
  {"do": "follow", "user": ..., "path": ..., "offset": 0}           frames on standard output until it is ended:
                    "D <n>\n" + n bytes, "T\n" when the file was cut short or replaced, "W\n" while there is none
  {"do": "read",   "files": [{"user", "path", "offset", "limit"}], "reports": [{"job", "offset", "limit"}]}
                    one JSON line a file, then one a report: {"size", "b64"} or {"error"}; reports are ours, see agent/
  {"do": "serve",  "user": ...}                                     answers "sbatch" of this person ("": "read" of anybody's) one
                    after the other, until standard input ends or nobody has asked for IDLE_S. Says "ready\n"; then each
                    request is a line {"ask": {...}, "size": n} + n bytes for its standard input, each answer a line
                    {"code", "out", "err"} + as many bytes of both outputs
Ends with 97 and one sentence on standard error when the person or the folder can't be used.
"""
