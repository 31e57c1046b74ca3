"""token creates, lists and revokes tokens and sign-in links."""

from __future__ import annotations

from headway.schemas.access.tokens import SignInLinkOut, TokenIn, TokenOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_token_create_prints_only_the_token_on_stdout(cli: Cli) -> None:
    made = TokenOut(id="t1", person="bob", role="viewer", label="ci", created_at=1.0, token="hw_secret")
    cli.api.on("tokens.create", made)
    done = cli("token", "create", "bob", "--role", "viewer", "--name", "ci", "--days", "3")
    assert done.out == "hw_secret\n"
    assert "hw_secret" not in done.err
    assert cli.api.named("tokens.create")[0][0][0] == TokenIn(person="bob", role="viewer", label="ci", days=3)


def test_quiet_token_create_prints_nothing_but_the_token(cli: Cli) -> None:
    cli.api.on(
        "tokens.create", TokenOut(id="t1", person="ann", role="admin", label="ci", created_at=1.0, token="hw_secret")
    )
    done = cli("token", "create", "--name", "ci", "--quiet", "--scope", "submit", "--cluster", "lab")
    assert (done.out, done.err) == ("hw_secret\n", "")
    asked = TokenIn(label="ci", scopes=["submit"], cluster="lab")
    assert cli.api.named("tokens.create")[0][0][0] == asked


def test_token_commands_list_and_revoke_tokens(cli: Cli) -> None:
    cli.api.on("tokens.list", [TokenOut(id="t1", person="bob", role="viewer", label="ci", created_at=1.0)])
    cli.api.on("tokens.revoke", None)
    assert "never" in cli("token", "ls").out
    assert cli("token", "revoke", "t1").out == "revoked t1\n"
    assert cli.api.named("tokens.revoke") == [(("t1",), {})]


def test_token_link_prints_only_the_sign_in_link(cli: Cli) -> None:
    cli.api.on("tokens.sign_in_link", SignInLinkOut(url="http://127.0.0.1:9/signin?code=x", expires_at=1.0))
    assert cli("token", "link").out == "http://127.0.0.1:9/signin?code=x\n"


def test_tokens_expire_after_90_days_unless_asked_otherwise(cli: Cli) -> None:
    cli.api.on("tokens.create", TokenOut(id="t1", person="ann", role="admin", label="", created_at=1.0, token="hw_x"))
    cli("token", "create")
    cli("token", "create", "--no-expiry")
    assert cli("token", "create", "--no-expiry", "--days", "3").code == 2
    assert [arguments[0].days for arguments, _ in cli.api.named("tokens.create")] == [90, None]
