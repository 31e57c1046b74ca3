"""Amazon EC2 as a CloudApi, by boto3. Credentials, profile and endpoint are those of the server's user (AWS_PROFILE,
~/.aws, the role of the instance); Headway stores none.

Not here: which machines are launched and when (`providers.cloud`)."""
