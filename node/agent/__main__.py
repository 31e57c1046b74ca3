"""Entry point: `agent.pyz ROLE ...`. The docstring of the package describes the roles."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Runs the role that the first argument names."""
    role, *values = sys.argv[1:]
    try:
        if role == "node":
            from agent.config import load
            from agent.roles.node import serve_node

            serve_node(load(*values))
        elif role == "head":
            from agent.config import load
            from agent.roles.head import serve_head

            serve_head(load(*values))
        elif role == "parts":
            from agent.config import load
            from agent.roles.gpu_parts import make_gpu_parts

            make_gpu_parts(load(), none=values == ["none"])
        elif role == "power":
            from agent.roles.power_requests import write_power_request

            write_power_request(*values)
        elif role == "keep":
            from agent.config import load
            from agent.jobs.queue_recovery import save_newest_jobs

            save_newest_jobs(load().state)
        elif role == "recall":
            from agent.config import load
            from agent.jobs.queue_recovery import note_files, resubmit_lost_jobs, takeover_folder

            config = load()
            for line in resubmit_lost_jobs(note_files(config.cluster), inherited=takeover_folder(config.state)):
                print(line, flush=True)
        elif role == "secrets":
            from agent.config import load
            from agent.jobs.secret_files import write_secret_files
            from agent.munge import Munge
            from agent.roles.head import PORT

            folder, failure = values
            write_secret_files(folder, failure, load(), Munge(), PORT)
        elif role == "test":
            from agent.node_tests.command import start

            start(values)
        elif role == "packages":
            from agent.package_proxy import serve

            serve(*values)
        elif role == "watch":
            from agent.roles.server_stream import stream_events

            stream_events(*values)
        else:
            sys.exit(f"agent: unknown role: {role}")
    except BrokenPipeError:  # the reader has closed its end
        os._exit(0)


if __name__ == "__main__":
    main()
