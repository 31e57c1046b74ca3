"""A stand-in for EC2 on loopback: moto's server, with what moto lacks. Launches with a token are idempotent; refusals,
lost answers, late lists, prices, quotas and spot notices are injected by the test; and a test may give instances bodies."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from io import BytesIO
from threading import RLock, Thread
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import boto3
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

REGION = "eu-central-1"
SPOT_CODE = "marked-for-termination"
# AWS answers a lack of capacity with 500 and too many requests with 503.
_STATUS = {"InsufficientInstanceCapacity": "500 Error", "RequestLimitExceeded": "503 Error"}
Answer = tuple[str, list[tuple[str, str]], bytes]


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass


@dataclass
class Refusal:
    """A refusal of the next `times` requests of an action; `only` names form fields that the request must have."""

    action: str
    code: str
    message: str
    times: int
    only: Mapping[str, str]


@dataclass
class Ec2StandIn:
    """The server. `url` is its endpoint. `born` and `ended` are called for instances that were launched and terminated."""

    born: Callable[[str, str, str], None] | None = None  # id, address, user data
    ended: Callable[[str], None] | None = None
    halted: Callable[[str, bool], None] | None = None  # id, whether it runs
    prices: dict[str, str] = field(default_factory=dict)  # type -> USD an hour
    quotas: dict[str, float] = field(default_factory=dict)  # code -> limit
    notices: dict[str, str] = field(default_factory=dict)  # id of a spot instance -> when, ISO 8601
    refusals: list[Refusal] = field(default_factory=list)
    losing: dict[str, int] = field(default_factory=dict)  # action -> answers to lose
    hidden: dict[str, int] = field(default_factory=dict)  # id -> lists in which it is still missing
    hides: int = 0  # lists in which an instance is missing after its launch
    requests: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    _tokens: dict[str, tuple[dict[str, str], bytes]] = field(default_factory=dict)
    _addresses: dict[str, str] = field(default_factory=dict)  # of the instances that are not terminated
    _gone: set[str] = field(default_factory=set)  # the instances that are terminated
    _lock: Any = field(default_factory=RLock)
    _server: BaseWSGIServer | None = None

    def __enter__(self) -> Ec2StandIn:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_Quiet)
        host, port = self._server.server_address[:2]
        self.url = f"http://{host}:{port}"
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.reset()
        return self

    def reset(self) -> None:
        """Forgets everything that was made, and all refusals, losses and notices; prices and quotas stay."""
        self._moto({"REQUEST_METHOD": "POST", "PATH_INFO": "/moto-api/reset", **_BARE}, lambda *_: None)
        for kept in (self.refusals, self.losing, self.hidden, self.requests, self._tokens, self._gone, self._addresses):
            kept.clear()  # type: ignore[attr-defined]
        self.notices.clear()
        self.hides = 0

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def client(self, service: str = "ec2") -> Any:
        """Returns a client with which the test looks at what there is, and acts as the console."""
        keys = {"aws_access_key_id": "console", "aws_secret_access_key": "console"}
        return boto3.client(service, endpoint_url=self.url, region_name=REGION, **keys)

    def refuse(self, action: str, code: str, message: str = "refused", times: int = 1, **only: str) -> None:
        self.refusals.append(Refusal(action, code, message, times, only))

    def calls(self, action: str) -> list[dict[str, str]]:
        """Returns the requests of an action."""
        return [request for request in self.requests if request.get("Action") == action]

    def living(self) -> list[dict[str, Any]]:
        """Returns the instances that cost money."""
        rows = self.client().describe_instances()["Reservations"]
        gone = ("terminated", "shutting-down")
        return [one for row in rows for one in row["Instances"] if one["State"]["Name"] not in gone]

    def _serve(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        scope = environ.get("HTTP_AUTHORIZATION", "")
        target = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        console = "Credential=console/" in scope
        form = {key: values[0] for key, values in parse_qs(body.decode(), keep_blank_values=True).items()}
        action = target or form.get("Action", "")
        if not console:
            with self._lock:
                self.requests.append({**form, "Action": action})
        status, headers, answer = self._answer(environ, body, action, form, console=console)
        if not console and self.losing.get(action, 0) > 0:
            self.losing[action] -= 1
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start(status, headers)
        return [answer]

    def _answer(
        self, environ: dict[str, Any], body: bytes, action: str, form: dict[str, str], *, console: bool
    ) -> Answer:
        with self._lock:
            for refusal in self.refusals if not console else ():
                fits = all(form.get(key.replace("__", ".")) == value for key, value in refusal.only.items())
                if refusal.action == action and refusal.times > 0 and fits:
                    refusal.times -= 1
                    return _fault(refusal.code, refusal.message)
        if action == "GetServiceQuota":
            return self._quota(json.loads(body))
        if action == "GetProducts":
            return self._products(json.loads(body))
        if action == "DescribeSpotInstanceRequests":
            return self._spot_requests(form)
        if action == "DescribeSpotPriceHistory":
            return self._spot_prices(form)
        if action == "RunInstances":
            return self._run(environ, body, form)
        if action == "DescribeInstances" and not console and self._is_late(form):
            if "InstanceId.1" in form:
                return _fault("InvalidInstanceID.NotFound", "does not exist")
            return _xml("DescribeInstancesResponse", "<reservationSet/>")
        ids = [value for key, value in form.items() if key.startswith("InstanceId.")]
        if action == "TerminateInstances" and ids and self._gone.issuperset(ids):  # moto refuses it, EC2 does not
            items = "".join(f"<item><instanceId>{one}</instanceId></item>" for one in ids)
            return _xml("TerminateInstancesResponse", f"<instancesSet>{items}</instancesSet>")
        answer = self._forward(environ, body)
        if answer[0].startswith("200"):
            for one in ids:
                if action == "TerminateInstances":
                    self._gone.add(one)
                    self._addresses.pop(one, None)
                if action == "TerminateInstances" and self.ended:
                    self.ended(one)
                if action in ("StopInstances", "StartInstances") and self.halted:
                    self.halted(one, action == "StartInstances")
        return answer

    def _is_late(self, form: dict[str, str]) -> bool:
        with self._lock:
            named = [form[key] for key in form if key.startswith("InstanceId.")] or list(self.hidden)
            late = [one for one in named if self.hidden.get(one, 0) > 0]
            for one in late:
                self.hidden[one] -= 1
            return bool(late)

    def _run(self, environ: dict[str, Any], body: bytes, form: dict[str, str]) -> Answer:
        token = form.get("ClientToken", "")
        plain = {key: value for key, value in form.items() if not key.startswith("AWSAccessKey")}
        with self._lock:
            if token in self._tokens:
                asked, kept = self._tokens[token]
                if asked != plain:
                    return _fault("IdempotentParameterMismatch", "the token was used with other parameters")
                return "200 OK", [("Content-Type", "text/xml")], kept
            wanted = form.get("NetworkInterface.1.PrivateIpAddress")
            if wanted and wanted in self._addresses.values():
                return _fault("InvalidIPAddress.InUse", f"Address {wanted} is in use.")
            alone = form["MaxCount"] == "1" and "NetworkInterface.1.DeviceIndex" in form
            if not wanted and self._addresses and alone:
                # moto would choose an address that was used before, EC2 chooses any
                free = f"{next(iter(self._addresses.values())).rpartition('.')[0]}.{100 + len(self._tokens)}"
                body += f"&NetworkInterface.1.PrivateIpAddress={free}".encode()
                environ = {**environ, "CONTENT_LENGTH": str(len(body))}
            answer = self._forward(environ, body)
            if not answer[0].startswith("200"):
                return answer
            self._tokens[token] = (plain, answer[2])
            launched = _launched(answer[2])
            self._addresses |= launched
            if self.hides:
                self.hidden |= dict.fromkeys(launched, self.hides)
        for one, address in launched.items() if self.born else ():
            self.born(one, address, base64.b64decode(form.get("UserData", "")).decode())  # type: ignore[misc]
        return answer

    def _spot_requests(self, form: dict[str, str]) -> Answer:
        items = "".join(
            f"<item><instanceId>{one}</instanceId><spotInstanceRequestId>sir-1</spotInstanceRequestId>"
            f"<status><code>{SPOT_CODE}</code><updateTime>{at}</updateTime></status></item>"
            for one, at in self.notices.items()
            if one in form.values()
        )
        return _xml("DescribeSpotInstanceRequestsResponse", f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>")

    def _spot_prices(self, form: dict[str, str]) -> Answer:
        """Answers with 40 % of the prices on demand in each zone; the newest price comes first, as at EC2."""
        rows = [
            (name, f"{REGION}{zone}", Decimal(usd) * share, f"2026-11-27T0{hour}:00:00.000Z")
            for name, usd in self.prices.items()
            if name in form.values()
            for hour, share in ((9, Decimal("0.4")), (8, Decimal("0.5")))
            for zone in "abc"
        ]
        items = "".join(
            f"<item><instanceType>{name}</instanceType><availabilityZone>{zone}</availabilityZone>"
            f"<spotPrice>{usd}</spotPrice><timestamp>{at}</timestamp></item>"
            for name, zone, usd, at in rows
        )
        return _xml("DescribeSpotPriceHistoryResponse", f"<spotPriceHistorySet>{items}</spotPriceHistorySet>")

    def _quota(self, asked: dict[str, str]) -> Answer:
        code = asked["QuotaCode"]
        if code not in self.quotas:
            return _json_fault("NoSuchResourceException")
        return _json({"Quota": {"QuotaCode": code, "Value": self.quotas[code]}})

    def _products(self, asked: dict[str, Any]) -> Answer:
        terms = {term["Field"]: term["Value"] for term in asked["Filters"]}
        usd = self.prices.get(terms["instanceType"])
        if usd is None:
            return _json({"FormatVersion": "aws_v1", "PriceList": []})
        dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
        term = {"effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": {"X.Y.Z": dimension}}
        product = {"product": {"attributes": terms}, "terms": {"OnDemand": {"X.Y": term}}}
        return _json({"FormatVersion": "aws_v1", "PriceList": [json.dumps(product)]})

    def _forward(self, environ: dict[str, Any], body: bytes) -> Answer:
        got: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *_: object) -> None:
            got.extend((status, headers))

        answer = b"".join(self._moto({**environ, "wsgi.input": BytesIO(body)}, start))
        return got[0], got[1], answer


_BARE = {
    "SERVER_NAME": "localhost", "SERVER_PORT": "80", "HTTP_HOST": "localhost", "wsgi.url_scheme": "http",
    "wsgi.input": BytesIO(), "wsgi.errors": BytesIO(), "QUERY_STRING": "", "SCRIPT_NAME": "",
}  # fmt: skip


def _fault(code: str, message: str) -> Answer:
    error = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
    text = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>r</RequestID></Response>"
    return _STATUS.get(code, "400 Bad Request"), [("Content-Type", "text/xml")], text.encode()


def _xml(name: str, inner: str) -> Answer:
    text = f'<{name} xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId>{inner}</{name}>'
    return "200 OK", [("Content-Type", "text/xml")], text.encode()


def _json(value: object) -> Answer:
    return "200 OK", [("Content-Type", "application/x-amz-json-1.1")], json.dumps(value).encode()


def _json_fault(code: str) -> Answer:
    answer = _json({"__type": code, "message": "there is none"})
    return "400 Bad Request", answer[1], answer[2]


def _launched(xml: bytes) -> dict[str, str]:
    """Returns the instances of a launch, with their addresses."""
    found = next(node for node in ElementTree.fromstring(xml).iter() if node.tag.rpartition("}")[2] == "instancesSet")
    return {_first(row, "instanceId"): _first(row, "privateIpAddress") for row in found}


def _first(row: ElementTree.Element, name: str) -> str:
    return next((node.text or "" for node in row.iter() if node.tag.rpartition("}")[2] == name), "")


def use_stand_in(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Makes the AWS clients of this process use the stand-in."""
    for name, value in aws_environment(url).items():
        monkeypatch.setenv(name, value)


def aws_environment(url: str) -> dict[str, str]:
    """Returns the environment in which a server uses the stand-in."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "headway",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }
