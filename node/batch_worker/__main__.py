"""batch_worker work|status|call: works on a batch, tells its progress, or serves calls of a program.

`work` finds the settings of the batch as JSON in HEADWAY_BATCH:

    folder      the state of the batch, on shared storage
    input       a folder with .jsonl files, or one file
    shard_rows  rows of a shard
    call_rows   rows that are computed in one call
    call_s      seconds within which a call, or a request to a server, must be answered
    tries       of a row, after which it has an error instead of a result
    lease_s     seconds after which the shard of a worker that does not answer goes to another
    start_s     seconds within which a program must be loaded, or a server become healthy
    program     FILE.py or FILE.py:FUNCTION; or "" for `server`
    server      command of an HTTP server, with {port} and {model}
    model, about    for the server; put into the output"""

import json
import os
import signal
import socket
import sys
import threading
import traceback

from batch_worker.chat_server import ChatServer
from batch_worker.plan import InputFault
from batch_worker.program import Program, StartFailed, serve_calls
from batch_worker.shared_files import SharedFiles
from batch_worker.status import read_status
from batch_worker.worker import FOLDERS, Worker

_RENEWALS = 6  # of a lease in its time


class Terminated(BaseException):
    """Slurm ends this worker."""


def main():
    """Carries out the command of the arguments."""
    command, words = sys.argv[1], sys.argv[2:]
    if command == "call":
        return serve_calls(*words)
    if command == "status":
        return print(json.dumps(read_status(words[0])), flush=True)
    return work(json.loads(os.environ["HEADWAY_BATCH"]))


def work(settings):
    """Works on a batch until its output exists. Returns the exit code."""
    folder = settings["folder"]
    for name in FOLDERS:
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    env = os.environ.get
    owner = "_".join(filter(None, [env("SLURM_ARRAY_JOB_ID") or env("SLURM_JOB_ID"), env("SLURM_ARRAY_TASK_ID")]))
    files = SharedFiles(os.path.join(folder, "tmp"))
    if settings["program"]:
        arguments = [sys.executable, os.path.abspath(sys.argv[0]), "call"]
        caller = Program(settings["program"], arguments, settings["start_s"], settings["call_s"])
    else:
        caller = ChatServer(
            settings["server"], settings["model"], settings["call_rows"], settings["start_s"], settings["call_s"]
        )
    run, node = env("SLURM_RESTART_COUNT") or "0", env("SLURMD_NODENAME") or socket.gethostname()
    worker = Worker(files, folder, settings, caller, owner, run, node)
    stop = threading.Event()

    def renew():
        while not stop.wait(settings["lease_s"] / _RENEWALS):
            worker.renew()

    renewals = threading.Thread(target=renew, daemon=True)

    def fail(error):
        stop.set()
        renewals.join()  # its record, which has no error, must not come after this one
        worker.fail(error)

    def terminate(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        worker.end()
        caller.kill()
        raise Terminated

    renewals.start()
    signal.signal(signal.SIGTERM, terminate)
    try:
        worker.work()
    except (InputFault, StartFailed) as error:
        fail(str(error))
        print(f"headway batch: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        fail(f"{type(error).__name__}: {error}")
        traceback.print_exc()
        return 1
    except Terminated:
        fail("Slurm ended it: its time limit, a preemption, or scancel")
        return 128 + signal.SIGTERM
    finally:
        stop.set()
        renewals.join()  # it must leave no temporary file
        caller.close()
        files.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
