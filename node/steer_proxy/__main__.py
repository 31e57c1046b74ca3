"""Makes the HAProxy of a head carry the traffic of services as standard input asks, and prints its figures as JSON. Runs as root,
again and again; what is as asked already stays untouched.

Input: {"port": PORT, "keys": {HASH: "TEAM:NAME"}, "limits": {HASH: REQUESTS A MINUTE},
"services": [{"name": "TEAM:NAME", "health": PATH, "hold_s": S, "servers": [{"name": NAME, "node": NODE, "port": PORT,
"state": "new" | "ready" | "drain", "weight": 1..256}]}], "unchanged": ["TEAM:NAME"]}
Output: {"services": {"TEAM:NAME": {"requests": N, ..., "servers": {NAME: {"healthy": BOOL, "sessions": N, "check": TEXT}}}}}

Services, servers and keys change through HAProxy's runtime socket. HAProxy can't add a backend at run time, so the file has a
number of backends that are alike (slots), and maps say which service has which. When they do not suffice, or a new version of
this program has another file, HAProxy starts a new process that takes over the listening socket, and the old one finishes its
requests. The file always has all servers, so a HAProxy that is started again carries on alone. A server that is new gets no
request until its health check has passed."""

import csv
import json
import os
import socket
import subprocess
import sys
import time

from steer_proxy.configuration import (
    FOLDER,
    HOLD,
    RUN,
    SERVICE_UNIT,
    SLOTS,
    configuration,
    name_of,
    server_words,
    shape_of,
)

MASTER = RUN + "/master.sock"
UNIT = "headway-serve.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
HAPROXY = "/usr/sbin/haproxy"
ANSWER_S = 10
START_S = 20
# HAProxy's times of a server are means of so many requests at most.
MEAN_REQUESTS = 1024


def main():
    request = json.load(sys.stdin)
    os.makedirs(FOLDER, mode=0o755, exist_ok=True)
    add_unchanged(request)
    if not request["services"]:
        if os.path.exists(UNIT_FILE):
            subprocess.run(["systemctl", "disable", "--now", UNIT], check=True, capture_output=True, timeout=60)
            os.remove(UNIT_FILE)
            for name in ("/keys.map", "/slots.json", "/services.json"):
                write(FOLDER + name, "", 0o600)
        print(json.dumps({"services": {}}))
        return
    write(FOLDER + "/services.json", json.dumps(request["services"]), 0o600)
    resolve(request)
    assign_slots(request)
    write(FOLDER + "/hold.lua", HOLD, 0o644)
    for name, values in maps(request).items():
        write(f"{FOLDER}/{name}", "".join(f"{key} {value}\n" for key, value in sorted(values.items())), 0o600)
    write(FOLDER + "/haproxy.cfg", configuration(request), 0o600)
    if not start_or_reload(shape_of(request)):
        for name, values in maps(request).items():
            set_map(name, values)
    set_servers(request)
    print(json.dumps({"services": read_figures(request)}))


def add_unchanged(request):
    """Adds the services that are to stay as they were asked for before."""
    known = json.loads(read(FOLDER + "/services.json") or "[]")
    request["services"] += [service for service in known if service["name"] in request["unchanged"]]


def maps(request):
    """Returns the maps that HAProxy looks into, in the order in which they are to change: a service has its settings before
    its slot, and a key has its limit before it opens the service."""
    services = request["services"]
    return {
        "health.map": {service["slot"]: service["health"] for service in services},
        "holds.map": {service["name"]: service["hold_s"] for service in services},
        "slots.map": {service["name"]: service["slot"] for service in services},
        "limits.map": request["limits"],
        "keys.map": request["keys"],
    }


def assign_slots(request):
    """Gives each service its slot: the one that it has, or a free one. The slot of a service that has left is free when the map
    of HAProxy no longer has it, and HAProxy has no server and no request of it any more. `since`: the figures that the slot had
    when it got its service, and the HAProxy process that had counted them. Ends the program if a HAProxy that runs does not
    answer: its slots could have requests."""
    known = json.loads(read(FOLDER + "/slots.json") or "{}")
    process = wait_for(worker) if is_running() else ""
    mapped = (
        set(read_map("slots.map").values()) if process else set()
    )  # before the figures: no request arrives in between
    rows = [row for row in stat_rows() if row["pxname"].startswith("slot")] if process else []
    counted = {row["pxname"]: counters(row) for row in rows if row["svname"] == "BACKEND"}
    busy = mapped | {row["pxname"] for row in rows if row["svname"] != "BACKEND" or number(row["scur"])}
    names = [service["name"] for service in request["services"]]
    assigned = {name: one for name, one in known.items() if name in names or one["slot"] in busy}
    taken = {one["slot"] for one in assigned.values()}
    there = max([SLOTS, *map(slot_number, taken | busy | counted.keys())])
    free = [slot for slot in map("slot{}".format, range(1, there + 1)) if slot not in taken | busy]
    free.sort(key=lambda slot: counted.get(slot, {}).get("requests", 0))  # unused ones first
    free += map("slot{}".format, range(there + 1, there + 1 + len(names)))
    for name, slot in zip([name for name in names if name not in assigned], free, strict=False):
        assigned[name] = {"slot": slot, "process": process, "since": counted.get(slot, {})}
    write(FOLDER + "/slots.json", json.dumps(assigned, sort_keys=True), 0o600)
    for service in request["services"]:
        service.update(assigned[service["name"]])
    most = max([there, *(slot_number(one["slot"]) for one in assigned.values())])
    request["slots"] = -(-most // SLOTS) * SLOTS


def resolve(request):
    """Adds the address of each server, and leaves out those whose node has none any more."""
    for service in request["services"]:
        found = []
        for server in service["servers"]:
            try:
                found.append({**server, "address": socket.gethostbyname(server["node"])})
            except OSError as error:
                print(f"{service['name']}/{server['name']}: {server['node']}: {error}", file=sys.stderr)
        service["servers"] = found


def slot_number(slot):
    """Returns the number of a slot."""
    return int(slot.removeprefix("slot"))


def start_or_reload(shape):
    """Starts HAProxy, or lets it read its file again. Returns whether it did so."""
    if not os.path.exists(HAPROXY):
        raise SystemExit("HAProxy is not installed on this head; its image is older: headway roll --head")
    unit = write(UNIT_FILE, SERVICE_UNIT.format(haproxy=HAPROXY, folder=FOLDER, run=RUN), 0o644)
    if unit:
        subprocess.run(["systemctl", "daemon-reload"], check=True, capture_output=True, timeout=60)
    running = is_running()
    if running and read(FOLDER + "/shape") == shape:
        return False
    check = [HAPROXY, "-c", "-f", FOLDER + "/haproxy.cfg"]
    checked = subprocess.run(check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    if checked.returncode:
        raise SystemExit("HAProxy refuses its configuration: " + " ".join(checked.stdout.split()))
    if running:
        before = worker()
        subprocess.run(["systemctl", "reload", UNIT], check=True, capture_output=True, timeout=60)
        wait_for(lambda: worker() not in ("", before))
    else:
        subprocess.run(["systemctl", "enable", UNIT], check=True, capture_output=True, timeout=60)
        subprocess.run(["systemctl", "restart", UNIT], check=True, capture_output=True, timeout=60)
        wait_for(worker)
    write(FOLDER + "/shape", shape, 0o644)
    return True


def is_running():
    """Returns whether systemd says that HAProxy runs."""
    return subprocess.run(["systemctl", "is-active", "--quiet", UNIT], timeout=60).returncode == 0


def wait_for(ready):
    """Waits until `ready` returns something true, and returns it."""
    ends = time.monotonic() + START_S
    while not (found := ready()):
        if time.monotonic() > ends:
            raise SystemExit("HAProxy does not answer; journalctl -u " + UNIT)
        time.sleep(0.05)
    return found


def worker():
    """Returns the process id of the HAProxy process that accepts connections; "" if none answers."""
    try:
        told = ask("show info")
    except OSError:
        return ""
    return next((line.split()[1] for line in told.splitlines() if line.startswith("Pid:")), "")


def ask(*commands, path=RUN + "/admin.sock"):
    """Returns the answer of a HAProxy socket to commands."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(path)
        connection.sendall(("; ".join(commands) + "\n").encode())
        connection.shutdown(socket.SHUT_WR)  # the master's socket stays open otherwise
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts).decode()


def read_map(name):
    """Returns a map of the running HAProxy."""
    return dict(line.split()[1:3] for line in ask(f"show map {FOLDER}/{name}").splitlines() if line)


def set_map(name, wanted):
    """Makes a map of the running HAProxy the one that is asked for."""
    path = f"{FOLDER}/{name}"
    known = read_map(name)
    for key in known.keys() - wanted.keys():
        ask(f"del map {path} {key}")
    for key, value in wanted.items():
        if key not in known:
            ask(f"add map {path} {key} {value}")
        elif known[key] != str(value):
            ask(f"set map {path} {key} {value}")


def set_servers(request):
    """Makes the servers of the running HAProxy those that are asked for."""
    known = {}
    for row in server_rows(stat_rows()):
        known.setdefault(row["pxname"], {})[row["svname"]] = row
    for service in request["services"]:
        there = known.pop(service["slot"], {})
        wanted = {name_of(server): server for server in service["servers"]}
        for name, server in wanted.items():
            where = f"{service['slot']}/{name}"
            if name not in there:
                answer = ask(f"add server {where} {server_words(server)} weight {server['weight']}").strip()
                if "registered" not in answer:
                    print(f"{where}: {answer}", file=sys.stderr)
                    continue
                ask("enable health " + where)
            weight = server["weight"] if server["state"] == "ready" else 0
            if name not in there or int(there[name]["weight"] or 0) != weight or "MAINT" in there[name]["status"]:
                ask(f"set server {where} weight {weight}", f"set server {where} state ready")
        for name in there.keys() - wanted.keys():
            remove(f"{service['slot']}/{name}")
    for slot, left in known.items():  # of services that are gone
        for name in left:
            remove(f"{slot}/{name}")


def remove(where):
    """Removes a server. One that still has requests stays, in maintenance, and is removed later."""
    ask(f"set server {where} state maint")
    ask("del server " + where)


def stat_rows(text=None):
    """Returns the rows of HAProxy's figures."""
    return list(csv.DictReader((ask("show stat") if text is None else text).lstrip("# ").splitlines()))


def server_rows(rows):
    """Returns those of servers."""
    return [row for row in rows if row["svname"] not in ("FRONTEND", "BACKEND")]


def counters(row):
    """Returns the figures of a backend that only grow."""
    return {
        "requests": number(row["req_tot"]),
        "errors_4xx": number(row["hrsp_4xx"]),
        "errors_5xx": number(row["hrsp_5xx"]),
        "retries": number(row["wretr"]),
    }


def read_figures(request):
    """Returns the figures of all services, since they got their slot or HAProxy was started. What runs now includes requests of
    processes that a reload has left."""
    process = worker()
    rows = stat_rows()
    found = {service["slot"]: {"servers": {}} for service in request["services"]}
    names = {(one["slot"], name_of(server)): server["name"] for one in request["services"] for server in one["servers"]}
    since = {service["slot"]: service["since"] for service in request["services"] if service["process"] == process}
    for row in (row for row in rows if row["pxname"] in found):
        service = found[row["pxname"]]
        if row["svname"] == "BACKEND":
            before = since.get(row["pxname"], {})
            service.update({name: value - before.get(name, 0) for name, value in counters(row).items()})
            servers = [one for one in server_rows(rows) if one["pxname"] == row["pxname"]]
            service.update(
                active=number(row["scur"]), first_byte_ms=mean(servers, "rtime"), total_ms=mean(servers, "ttime")
            )
        elif name := names.get((row["pxname"], row["svname"])):
            row["check_status"] = row["check_status"].lstrip("* ")  # while another check runs, that of the last one
            service["servers"][name] = {
                "healthy": row["check_status"].startswith("L7OK"),
                "sessions": number(row["scur"]),
                "requests": number(row["stot"]),
                "check": " ".join(filter(None, (row["check_status"], row["check_code"], row["last_chk"]))),
            }
    for row in (row for old in old_processes() for row in server_rows(stat_rows(old)) if row["pxname"] in found):
        server = found[row["pxname"]]["servers"].get(names.get((row["pxname"], row["svname"])))
        if server is not None:
            server["sessions"] += number(row["scur"])
    return {service["name"]: found[service["slot"]] for service in request["services"]}


def mean(servers, column):
    """Returns the mean of a time over the last requests of all servers. Not that of their backend, which includes requests of
    the service that had the slot before."""
    counts = [min(number(row["stot"]), MEAN_REQUESTS) for row in servers]
    total = sum(count * number(row[column]) for count, row in zip(counts, servers, strict=True))
    return round(total / max(1, sum(counts)))


def old_processes():
    """Yields the figures of processes that still finish requests after a reload."""
    old = False
    for line in wait_for(processes).splitlines():
        if line.startswith("#"):
            old = line.startswith("# old workers")
        elif old and line.split():
            try:
                yield ask(f"@!{line.split()[0]} show stat", path=MASTER)
            except OSError:  # it has just ended
                continue


def processes():
    """Returns the master's list of HAProxy's processes; "" if it does not answer. After a start or a reload it listens somewhat
    later than the process that accepts connections."""
    try:
        return ask("show proc", path=MASTER)
    except OSError:
        return ""


def number(text):
    """Returns the number of a field; 0 for an empty one."""
    return int(text or 0)


def read(path):
    """Returns the text of a file; "" if there is none."""
    try:
        with open(path) as opened:
            return opened.read()
    except FileNotFoundError:
        return ""


def write(path, text, mode):
    """Writes a file atomically. Returns whether it has changed."""
    if os.path.exists(path) and read(path) == text:
        return False
    new = path + ".new"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "w") as out:
        os.fchmod(out.fileno(), mode)
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(new, path)
    return True


if __name__ == "__main__":
    main()
