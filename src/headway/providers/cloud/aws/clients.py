"""The clients of AWS's services. Requests run in threads and have time limits."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from threading import Lock
from typing import Any

from headway.errors import HeadwayError, Unanswered, Unreachable
from headway.providers.cloud.aws.error_codes import error_of_response
from headway.providers.cloud.refusals import AuthFailed, Rejected

_CONNECT_S, _READ_S, _TRIES = 5, 30, 3


class AwsClients:
    """The clients of one region. Each request runs in a thread."""

    def __init__(self, region: str) -> None:
        self.region = region
        self._session: Any = None
        self._clients: dict[str, Any] = {}
        self._lock = Lock()  # requests of several threads need the same client at once

    def client(self, service: str) -> Any:
        """Returns boto3's client of a service."""
        with self._lock:
            if service not in self._clients:
                from botocore.config import Config

                # The price list is served in few regions, for all of them.
                region = "us-east-1" if service == "pricing" else self.region
                retries = {"total_max_attempts": _TRIES, "mode": "standard"}
                config = Config(connect_timeout=_CONNECT_S, read_timeout=_READ_S, retries=retries)
                self._session = self._session or _new_session()
                self._clients[service] = self._session.client(service, region_name=region, config=config)
            return self._clients[service]

    def _forget(self) -> None:
        """Drops the clients: those that come next read the credentials again, which a person may have renewed."""
        with self._lock:
            self._session, self._clients = None, {}

    async def call(self, operation: str, service: str = "ec2", **parameters: Any) -> dict[str, Any]:
        """Sends a request and returns its answer. Raises a CloudRefusal, Unreachable or Unanswered."""
        return await asyncio.to_thread(self._call, service, operation, parameters)

    async def pages(self, operation: str, key: str, **parameters: Any) -> list[dict[str, Any]]:
        """Returns the items under `key` of all pages of an answer."""

        def read(client: Any) -> list[dict[str, Any]]:
            return [item for page in client.get_paginator(operation).paginate(**parameters) for item in page[key]]

        return list(await asyncio.to_thread(self._guarded, "ec2", read))

    def _call(self, service: str, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        return dict(self._guarded(service, lambda client: getattr(client, operation)(**parameters)))

    def _guarded(self, service: str, request: Callable[[Any], Any]) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            return request(self.client(service))
        except ClientError as error:
            found = error_of_response(error.response, service, self.region)
            if isinstance(found, AuthFailed):
                self._forget()
            raise found from error
        except BotoCoreError as error:
            lost = self._connection_error(service, error)
            if isinstance(lost, AuthFailed):
                self._forget()
            raise lost from error
        except ResponseParserError as error:  # a page of a proxy in between
            words = f"AWS {service} in {self.region} answers with something else than AWS does"
            raise Unanswered(words, hint="try again in a minute; see if a proxy is in between") from error

    def _connection_error(self, service: str, error: Exception) -> HeadwayError:
        from botocore import exceptions

        no_keys = (
            exceptions.NoCredentialsError,
            exceptions.PartialCredentialsError,
            exceptions.CredentialRetrievalError,
            exceptions.ProfileNotFound,
            exceptions.TokenRetrievalError,
        )
        if isinstance(error, no_keys):
            return AuthFailed(str(error))
        if isinstance(error, exceptions.EndpointConnectionError | exceptions.ConnectTimeoutError):
            return Unreachable(f"AWS {service} in {self.region} does not answer: {error}", hint="check the network")
        if isinstance(error, exceptions.ParamValidationError):
            return Rejected("ParamValidation", str(error))
        return Unanswered(
            f"an answer of AWS {service} in {self.region} was lost: {error}", hint="try again in a minute"
        )


def _new_session() -> Any:
    """Returns a session that reads the credentials for itself, and shares the descriptions of AWS's services, which are large."""
    import boto3
    import botocore.session

    core, loader = botocore.session.get_session(), _descriptions()
    core.register_component("data_loader", loader)
    made = boto3.session.Session(botocore_session=core)
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)  # each session of boto3 adds its own folder
    return made


@functools.lru_cache(maxsize=1)
def _descriptions() -> Any:
    import botocore.loaders

    return botocore.loaders.create_loader()
