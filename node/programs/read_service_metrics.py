"""Reads the requests that the proxy of services has finished, and the counters that replicas publish, and prints both as JSON.
Runs as root on the head.

Input: {"after": MARK, "growth": FACTOR, "replicas": [{"name": "TEAM:NAME/REPLICA", "node": NODE, "port": PORT}]}
Output: {"after": MARK, "requests": {"TEAM:NAME/REPLICA": {"requests": N, "errors": N, "aborted": N, "total": {BUCKET: N},
"first": {BUCKET: N}}}, "counters": {"TEAM:NAME/REPLICA": {"prompt_tokens": N, "generated_tokens": N,
"first_token": {SECONDS: N}}}}

The proxy keeps the latest requests in memory, as many as fit into 1 MiB (about 20,000). `after` names the last one that was read
before; if it is not there any more, all are read. Requests that no replica has answered have an empty REPLICA. A BUCKET is the
power of FACTOR up to which a time in milliseconds goes. `first_token` counts answers up to so many seconds, as a Prometheus
histogram does."""

import http.client
import json
import math
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

SOCKET = "/run/headway-serve/admin.sock"
ANSWER_S = 10
METRICS_S = 2  # for the counters of a replica, after it has been connected
COLLECT_S = 20  # after which no further replica is read
MOST_BUCKETS = 100  # of a replica
MOST_OF_UPPER = 32  # characters of a bucket's upper bound
MOST_BYTES = 4 << 20
THREADS = 16
# Of vLLM, SGLang, TGI and llama.cpp
COUNTERS = {
    "vllm:prompt_tokens_total": "prompt_tokens",
    "sglang:prompt_tokens_total": "prompt_tokens",
    "tgi_request_input_length_sum": "prompt_tokens",
    "llamacpp:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generated_tokens",
    "sglang:generation_tokens_total": "generated_tokens",
    "tgi_request_generated_tokens_sum": "generated_tokens",
    "llamacpp:tokens_predicted_total": "generated_tokens",
}
FIRST_TOKEN = ("vllm:time_to_first_token_seconds_bucket", "sglang:time_to_first_token_seconds_bucket")


def main():
    asked = json.load(sys.stdin)
    lines = finished_requests()
    after, requests = count(lines, asked["after"], asked["growth"])
    ends = time.monotonic() + COLLECT_S
    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(lambda one: counters_of(one["node"], one["port"], ends), asked["replicas"]))
    counters = {one["name"]: read for one, read in zip(asked["replicas"], found, strict=True)}
    print(json.dumps({"after": after, "requests": requests, "counters": {k: v for k, v in counters.items() if v}}))


def finished_requests():
    """Returns a line for each request that the proxy still has in memory, the oldest first; none while it does not run."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        try:
            connection.connect(SOCKET)
        except OSError:
            return []
        connection.sendall(b"show events requests\n")
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return [line for line in b"".join(parts).decode(errors="replace").splitlines() if line.count(" ") == 8]


def count(lines, after, growth):
    """Returns (the mark of the last line, the figures of the lines after the one with the mark `after`, by service and
    replica)."""
    if not lines:
        return after, {}
    marks = [mark_of(line) for line in lines]
    begin = len(marks) - marks[::-1].index(after) if after in marks else 0
    found = {}
    log_growth = math.log(growth)

    def bucket(ms):
        return str(max(0, math.ceil(math.log(ms) / log_growth))) if ms > 1 else "0"

    for line in lines[begin:]:
        _, _, service, backend, server, ended, status, total, data = line.split(" ")
        if not backend.startswith("slot"):  # refused before it was known which service it is for
            continue
        replica = "" if server.startswith("<") else server.split("-", 1)[0]
        one = found.setdefault(
            f"{service}/{replica}", {"requests": 0, "errors": 0, "aborted": 0, "total": {}, "first": {}}
        )
        one["requests"] += 1
        if ended[0] == "C":
            one["aborted"] += 1
        elif int(status) >= 500 or int(status) < 0 or (ended[0] in "Ss" and ended[1] == "D"):
            one["errors"] += 1
        elif status != "101":  # of a WebSocket, which is as long as its client likes
            for name, ms in (("total", int(total)), ("first", int(total) - max(0, int(data)))):
                place = bucket(ms)
                one[name][place] = one[name].get(place, 0) + 1
    return marks[-1], found


def mark_of(line):
    """Returns what names a request: the process that has answered it, and its number there."""
    return " ".join(line.split(" ", 2)[:2])


def counters_of(node, port, ends):
    """Returns the counters that a replica publishes at /metrics; none if it publishes nothing in time, or `ends` (monotonic) is
    over."""
    return read_counters(metrics_of(node, port)) if time.monotonic() < ends else {}


def metrics_of(node, port):
    """Returns what a replica publishes at /metrics; "" if it publishes nothing in time."""
    connection = http.client.HTTPConnection(node, port, timeout=METRICS_S)
    late = threading.Event()
    parts = []
    timer = None
    try:
        connection.connect()
        timer = threading.Timer(METRICS_S, end_connection, (connection.sock, late))
        timer.daemon = True
        timer.start()
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        if answer.status != 200:
            return ""
        size = 0
        while part := answer.read1(65536):
            parts.append(part)
            size += len(part)
            if late.is_set() or size > MOST_BYTES:
                return ""
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        if timer is not None:
            timer.cancel()
        connection.close()
    return "" if late.is_set() else b"".join(parts).decode(errors="replace")


def end_connection(connection, late):
    """Ends a connection that takes too long: its reader then gets nothing more."""
    late.set()
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def read_counters(text):
    """Returns the counters of tokens in a text of Prometheus, summed over their labels."""
    found = {}
    for line in text.splitlines():
        name, _, _ = line.partition("{")
        name = name.split(" ")[0]
        if name not in COUNTERS and name not in FIRST_TOKEN:
            continue
        value = number(line[line.rfind("}") + 1 :].split() if "{" in line else line.split()[1:])
        if value is None:
            continue
        if name in COUNTERS:
            found[COUNTERS[name]] = found.get(COUNTERS[name], 0) + value
        else:
            _, _, rest = line.partition('le="')
            upper = rest.partition('"')[0]
            buckets = found.setdefault("first_token", {})
            if 0 < len(upper) <= MOST_OF_UPPER and (upper in buckets or len(buckets) < MOST_BUCKETS):
                buckets[upper] = buckets.get(upper, 0) + value
    return found


def number(words):
    """Returns the first word as a number; None if it is none."""
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return int(value) if 0 <= value < 2**60 else None


if __name__ == "__main__":
    main()
