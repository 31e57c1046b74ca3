"""Prints the seconds since the last heartbeat of each node as a JSON object. Runs on the head.

heartbeat_ages.py FILE      the file that node/agent/heartbeats.py writes"""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    with open(sys.argv[1]) as file:
        print(json.dumps({node: time.time() - at for node, at in json.load(file).items()}))


if __name__ == "__main__":
    main()
