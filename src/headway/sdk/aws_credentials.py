"""S3 credentials and endpoint of this machine, found as the AWS tools find them."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import ValidationError

from headway.errors import Refused
from headway.schemas.storage.datasets import S3In


def s3_access(endpoint_url: str = "") -> S3In:
    """Returns credentials from the environment, AWS_PROFILE or the instance's role; empty ones when there are none.

    Raises Refused for settings that can't be read."""
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        session = boto3.session.Session()
        found = session.get_credentials()
        keys = found.get_frozen_credentials() if found else None
        place = endpoint_url or session.client("s3", region_name=session.region_name or "us-east-1").meta.endpoint_url
    except (BotoCoreError, ValueError) as error:
        raise Refused(f"the AWS settings can't be used: {error}", hint="check aws configure list") from None
    if not endpoint_url and (urlsplit(place).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        place = ""
    try:
        return S3In.model_validate(
            {
                "endpoint_url": place,
                "region": session.region_name or "",
                "key_id": (keys.access_key if keys else "") or "",
                "secret": (keys.secret_key if keys else "") or "",
                "token": (keys.token if keys else "") or "",
            }
        )
    except ValidationError as error:
        fields = ", ".join(sorted({str(fault["loc"][0]) for fault in error.errors()}))
        raise Refused(
            f"the AWS settings can't be used: {fields}", hint="give an endpoint as http://HOST or https://HOST"
        ) from None
