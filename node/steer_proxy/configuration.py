"""The text of HAProxy's configuration, and the names and lines of its servers."""

import hashlib

FOLDER = "/etc/headway/serve"
RUN = "/run/headway-serve"
CHECK = "check inter 1s fastinter 500ms downinter 500ms fall 2 rise 1 observe layer4 error-limit 5 on-error mark-down"
# Slots come in steps of this number.
SLOTS = 64
HOLD = """\
-- Holds a request while its service has no server that could answer it, for a number of seconds at most. A process that a
-- reload has left checks no servers any more: it refuses the request, and the client asks the new process.
local function refuse(txn, seconds, text)
    txn:done(txn:reply({
        status = 503,
        headers = { ["content-type"] = { "text/plain" }, ["retry-after"] = { seconds } },
        body = text .. "\\n",
    }))
end

core.register_action("hold", { "http-req" }, function(txn)
    local name = txn.f:be_name()
    local left = (txn:get_var("txn.hold") or 0) * 20
    while txn.f:nbsrv(name) == 0 do
        if left % 20 == 0 and tonumber(core.get_info()["Stopping"]) ~= 0 then
            return refuse(txn, "1", "the proxy was reloaded; ask again")
        end
        if left <= 0 then
            return refuse(txn, "5", "no replica is healthy")
        end
        core.msleep(50)
        left = left - 1
    end
end, 0)
"""
SERVICE_UNIT = """\
[Unit]
Description=Proxy of Headway's services
After=network-online.target

[Service]
Type=notify
ExecStart={haproxy} -Ws -f {folder}/haproxy.cfg -p {run}/haproxy.pid -S {run}/master.sock,mode,600
ExecReload=/bin/kill -USR2 $MAINPID
RuntimeDirectory=headway-serve
KillMode=mixed
Restart=always
RestartSec=100ms
SuccessExitStatus=143
LimitNOFILE=20000

[Install]
WantedBy=multi-user.target
"""
# The ring has the latest finished requests, for node/programs/read_service_metrics.py, but for those that were refused: requests
# without a key would else replace those of services.
# The old process of a reload ends after `hard-stop-after`, with whatever requests it still has.
HEAD = """\
global
    log stdout format raw daemon notice
    user haproxy
    group haproxy
    maxconn 9900
    hard-stop-after 60m
    stats socket {run}/admin.sock mode 600 level admin expose-fd listeners
    stats timeout 30s
    lua-load {folder}/hold.lua

ring requests
    format raw
    maxlen 400
    size 1048576

defaults
    mode http
    timeout connect 2s
    timeout client 10m
    timeout server 60m
    timeout tunnel 60m
    timeout http-request 15s
    timeout http-keep-alive 75s
    timeout queue 60s
    retries 3
    retry-on conn-failure
    option redispatch 1
    option http-server-close
    option forwardfor

frontend serve
    bind :{port}
    log ring@requests format raw daemon
    option dontlognull
    log-format "%pid %rt %[var(txn.service)] %b %s %ts %ST %Ta %Td"
    http-request set-log-level silent unless {{ path_beg /serve/ }}
    http-request return status 404 content-type text/plain string "no such service\\n" unless {{ path_beg /serve/ }}
    http-request set-var(txn.team) path,field(3,/)
    http-request set-var(txn.name) path,field(4,/)
    http-request set-var-fmt(txn.service) "%[var(txn.team)]:%[var(txn.name)]"
    http-request set-var(txn.key) http_auth_bearer,sha2(256),hex,lower
    http-request set-var(txn.granted) var(txn.key),map_str({folder}/keys.map)
    acl known_key var(txn.granted) -m found
    acl key_of_service var(txn.granted),strcmp(txn.service) eq 0
    http-request set-log-level silent unless known_key key_of_service
    http-request return status 401 content-type text/plain string "invalid key\\n" hdr WWW-Authenticate Bearer unless known_key
    http-request return status 403 content-type text/plain string "key of another service\\n" unless key_of_service
    stick-table type string len 64 size 100k expire 2m store http_req_rate(1m)
    http-request track-sc0 var(txn.key)
    http-request set-var(txn.rate) sc_http_req_rate(0)
    http-request set-var(txn.limit) var(txn.key),map_str_int({folder}/limits.map)
    acl has_limit var(txn.limit) -m found
    acl over_limit var(txn.limit),sub(txn.rate) lt 0
    http-request set-log-level silent if has_limit over_limit
    http-request return status 429 content-type text/plain string "too many requests\\n" if has_limit over_limit
    http-request del-header Authorization
    http-request replace-path /serve/[^/]+/[^/]+/?(.*) /\\1
    http-request set-var(txn.hold) var(txn.service),map_str_int({folder}/holds.map,0)
    use_backend %[var(txn.service),map_str({folder}/slots.map)]
"""
BACKEND = """
backend {name}
    balance leastconn
    option httpchk
    http-check send meth GET uri-lf %[be_name,map_str({folder}/health.map,/)] ver HTTP/1.1 hdr Host headway
    http-check expect status 200-299
    http-request return status 503 content-type text/plain string "too many requests at once\\n" if {{ be_conn gt {most} }}
    http-request lua.hold
"""
# Requests that a service may have at once, with those that are held. Less than a third of `maxconn`: also three services at this
# limit leave connections for others.
MOST_REQUESTS = 3000


def configuration(request):
    """Returns the text of the configuration file."""
    text = HEAD.format(run=RUN, folder=FOLDER, port=request["port"])
    of_slots = {service["slot"]: service["servers"] for service in request["services"]}
    for slot in (f"slot{number}" for number in range(1, request["slots"] + 1)):
        text += BACKEND.format(name=slot, folder=FOLDER, most=MOST_REQUESTS)
        for server in of_slots.get(slot, ()):
            weight = server["weight"] if server["state"] == "ready" else 0
            text += f"    server {name_of(server)} {server_words(server)} weight {weight}\n"
    return text


def address_of(server):
    """Returns ADDRESS:PORT of a server."""
    return f"{server['address']}:{server['port']}"


def name_of(server):
    """Returns the name of a server in HAProxy. It has the address: a server on another node is another one, and the old one
    stays while it has requests."""
    return f"{server['name']}-{address_of(server)}"


def server_words(server):
    """Returns address and checks of a server, as the file and the runtime socket take them."""
    return f"{address_of(server)} {CHECK}"


def shape_of(request):
    """Returns a digest of the configuration without its servers: if it is unchanged, the runtime socket suffices."""
    return hashlib.sha256((configuration({**request, "services": []}) + HOLD).encode()).hexdigest()
