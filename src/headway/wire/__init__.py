"""The API's requests and answers, shared by headway.api and headway.sdk. Times are unix seconds, sizes MiB."""
