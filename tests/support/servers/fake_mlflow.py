"""An MLflow server in memory: runs, versions of models, aliases and files of one workspace. It fails on any other request."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

LIST = "/api/2.0/mlflow-artifacts/artifacts"


@dataclass
class FakeMlflow:
    """`files`: content by path in the artifact store. `runs`: (tags, metrics) by id. `logged`: run by id of a logged model.
    `versions`: (run, folder) by (model, number). `aliases`: number by (model, alias). `down`: whether no request is answered;
    `broken`: the end of paths that the server answers with a fault of its own."""

    files: dict[str, bytes] = field(default_factory=dict)
    runs: dict[str, tuple[dict[str, str], dict[str, float]]] = field(default_factory=dict)
    logged: dict[str, str] = field(default_factory=dict)
    versions: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    aliases: dict[tuple[str, str], int] = field(default_factory=dict)
    down: bool = False
    broken: str = ""
    created_ms: int = 1000

    def client(self) -> httpx.AsyncClient:
        """Returns a client of this server."""
        return httpx.AsyncClient(transport=httpx.MockTransport(self.answer), base_url="http://localhost")

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Returns the answer to a request."""
        if self.down:
            raise httpx.ConnectError("down")
        path, query = request.url.path, request.url.params
        if self.broken and path.endswith(self.broken):
            return httpx.Response(500, json={"error_code": "INTERNAL_ERROR", "message": "no space left"})
        if path.startswith(f"{LIST}/"):
            content = self.files.get(path.removeprefix(f"{LIST}/"))
            return _missing() if content is None else httpx.Response(200, content=content)
        if path == LIST:
            return _json({"files": self._listed(query["path"])})
        name = path.rpartition("/mlflow/")[2]
        body = json.loads(request.content) if request.content else {}
        answers = {
            "workspaces": lambda: {},
            "registered-models/search": self._search,
            "registered-models/get": lambda: self._model(query["name"]),
            "registered-models/alias": lambda: self._alias(request.method, body or dict(query)),
            "model-versions/search": lambda: self._versions(query["filter"]),
            "model-versions/get": lambda: self._one(query["name"], int(query["version"])),
            "model-versions/get-download-uri": lambda: self._place(query["name"], int(query["version"])),
            "runs/get": lambda: self._run(query["run_id"]),
        }
        if name.startswith("logged-models/"):
            answers[name] = lambda: self._logged(name.rpartition("/")[2])
        if name not in answers:
            raise AssertionError(f"unexpected request to MLflow: {request.method} {request.url}")
        try:
            return _json(answers[name]())
        except KeyError:
            return _missing()

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for path, content in self.files.items():
            if path.startswith(f"{folder}/"):
                first, slash, _ = path.removeprefix(f"{folder}/").partition("/")
                found[first] = {"path": first, "is_dir": bool(slash)}
                if not slash:
                    found[first]["file_size"] = len(content)
        return list(found.values())

    def _names(self) -> list[str]:
        return sorted({model for model, _ in self.versions})

    def _search(self) -> dict[str, Any]:
        return {"registered_models": [self._model(name)["registered_model"] for name in self._names()]}

    def _model(self, name: str) -> dict[str, Any]:
        if name not in self._names():
            raise KeyError(name)
        latest = max(number for model, number in self.versions if model == name)
        aliases = [{"alias": alias, "version": str(at)} for (model, alias), at in self.aliases.items() if model == name]
        return {
            "registered_model": {
                "name": name, "latest_versions": [self._one(name, latest)["model_version"]], "aliases": aliases,
            }
        }  # fmt: skip

    def _versions(self, query: str) -> dict[str, Any]:
        wanted = query.partition("=")[2].strip("'")
        key = 0 if query.startswith("name") else 1
        found = [
            self._one(model, number)["model_version"]
            for (model, number), (run, _) in self.versions.items()
            if (model, run)[key] == wanted
        ]
        return {"model_versions": found}

    def _one(self, name: str, number: int) -> dict[str, Any]:
        run, _ = self.versions[name, number]
        aliases = [alias for (model, alias), at in self.aliases.items() if (model, at) == (name, number)]
        return {
            "model_version": {
                "name": name, "version": str(number), "run_id": run, "aliases": aliases, "creation_timestamp": self.created_ms,
            }
        }  # fmt: skip

    def _place(self, name: str, number: int) -> dict[str, Any]:
        return {"artifact_uri": self.versions[name, number][1]}

    def _run(self, run: str) -> dict[str, Any]:
        tags, metrics = self.runs[run]
        return {
            "run": {
                "info": {"run_id": run, "artifact_uri": f"mlflow-artifacts:/workspaces/w/1/{run}/artifacts"},
                "data": {
                    "tags": [{"key": key, "value": value} for key, value in tags.items()],
                    "metrics": [{"key": key, "value": value} for key, value in metrics.items()],
                },
            }
        }

    def _logged(self, model: str) -> dict[str, Any]:
        uri = f"mlflow-artifacts:/workspaces/w/1/models/{model}/artifacts"
        return {"model": {"info": {"model_id": model, "artifact_uri": uri, "source_run_id": self.logged[model]}}}

    def _alias(self, method: str, sent: dict[str, Any]) -> dict[str, Any]:
        key = (sent["name"], sent["alias"])
        if method == "GET":
            return self._one(key[0], self.aliases[key])
        assert method == "POST", method
        assert (key[0], int(sent["version"])) in self.versions
        self.aliases[key] = int(sent["version"])
        return {}


def _json(answer: Any) -> httpx.Response:
    return httpx.Response(200, json=answer)


def _missing() -> httpx.Response:
    return httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "there is none"})
