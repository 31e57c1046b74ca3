"""Entry point: `agent.pyz ROLE ...`. The docstring of the package describes the roles."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Runs the role that the first argument names."""
    role, *values = sys.argv[1:]
    try:
        if role == "node":
            from agent.config import load_config
            from agent.roles.node import serve_node

            serve_node(load_config(*values))
        elif role == "head":
            from agent.config import load_config
            from agent.roles.head import serve_head

            serve_head(load_config(*values))
        elif role == "parts":
            from agent.config import load_config
            from agent.roles.gpu_parts import make_gpu_parts

            make_gpu_parts(load_config(), none=values == ["none"])
        elif role == "power":
            from agent.roles.power_requests import write_power_request

            write_power_request(*values)
        elif role == "save-scripts":
            from agent.config import load_config
            from agent.jobs.queue_recovery import save_newest_jobs

            save_newest_jobs(load_config().state)
        elif role == "resubmit":
            from agent.config import load_config
            from agent.jobs.queue_recovery import note_files, resubmit_lost_jobs, takeover_folder

            config = load_config()
            for line in resubmit_lost_jobs(note_files(config.cluster), inherited=takeover_folder(config.state)):
                print(line, flush=True)
        elif role == "secrets":
            from agent.config import load_config
            from agent.jobs.secret_files import write_secret_files
            from agent.munge import Munge
            from agent.roles.head import PORT

            folder, failure = values
            write_secret_files(folder, failure, load_config(), Munge(), PORT)
        elif role == "test":
            from agent.node_tests.command import start_tests

            start_tests(values)
        elif role == "packages":
            from agent.package_proxy import serve_proxy

            serve_proxy(*values)
        elif role == "watch":
            from agent.roles.server_stream import stream_events

            stream_events(*values)
        else:
            sys.exit(f"agent: unknown role: {role}")
    except BrokenPipeError:  # the reader has closed its end
        os._exit(0)


if __name__ == "__main__":
    main()
