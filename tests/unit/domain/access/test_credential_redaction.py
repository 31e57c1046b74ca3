"""Names of secrets are recognised, and texts that contain secrets are shown masked."""

from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.domain.access.credential_redaction import (
    MASK,
    is_secret,
    lost_secrets,
    mask_environment,
    mask_script_text,
    mask_words,
    masked_lines,
    masked_names,
)

SECRETS = """
HF_TOKEN HUGGING_FACE_HUB_TOKEN GITHUB_TOKEN GH_TOKEN TOKEN ACCESS_TOKEN REFRESH_TOKEN SESSION_TOKEN AWS_SESSION_TOKEN
BEARER_TOKEN API_TOKENS HF_TOKEN_2 HF_TOKEN_PROD TOKEN_VALUE hfToken --hf-token --token trainer.hub_token
WANDB_API_KEY OPENAI_API_KEY API_KEY APIKEY apiKey --api-key API_KEYS API_KEY_2 API_KEY_OPENAI KEY AWS_SECRET_ACCESS_KEY
AWS_ACCESS_KEY_ID AZURE_STORAGE_KEY STORAGE_ACCOUNT_KEY DJANGO_SECRET_KEY SECRET_KEY_BASE PRIVATE_KEY SSH_PRIVATE_KEY
ENCRYPTION_KEY LICENSE_KEY WANDB_KEY
SECRET CLIENT_SECRET SECRETS VAULT_SECRET_ID WEBHOOK_SECRET HEADWAY_NOTEBOOK_SECRET HEADWAY_NOTEBOOK_BASE_SECRET
PASSWORD DB_PASSWORD PGPASSWORD MYSQL_ROOT_PASSWORD PASSWD PASSPHRASE DB_PASS SMTP_PASS MYSQL_PWD SSHPASS
HFTOKEN GHTOKEN SLACKTOKEN BEARERTOKEN CLIENTSECRET APPSECRET AWSSECRETACCESSKEY WANDBAPIKEY OPENAIAPIKEY HF_TOKENS GITHUB_TOKENS
AUTH BASIC_AUTH HTTP_AUTH REDIS_AUTH AUTH_TOKEN AUTH_HEADER AUTHORIZATION CREDENTIALS GITHUB_PAT JWT
"""
ORDINARY = """
TOKENIZERS_PARALLELISM MAX_TOKENS --max-tokens TOKENIZER --tokenizer --tokenizer-path --tokenizer_name NUM_TOKENS TOKENS_PER_STEP
 --pad-token EOS_TOKEN --mask_token --placeholder_token --moe-token-dispatcher-type --token-dropout TOKEN_LIMIT
PER_TOKEN --use-auth-token USE_AUTH TOKEN_FILE HF_TOKEN_PATH AWS_WEB_IDENTITY_TOKEN_FILE TOKEN_URL JUPYTER_TOKEN_FILE DETOKENIZE
author AUTHOR --authors GIT_AUTHOR_NAME AUTHENTICATION_METHOD AUTH_URL AUTH_TYPE
PUBLIC_KEY PRIMARY_KEY SORT_KEY CACHE_KEY data.prompt_key --text-key --json-keys KEYS MONKEY KEYBOARD KEY_FILE SSH_KEY_PATH
GOOGLE_APPLICATION_CREDENTIALS AWS_SHARED_CREDENTIALS_FILE SECRET_NAME PASSWORD_FILE OIDC_CLIENT_SECRET_FILE SECRETARY
NO_PASSWORD NUM_PASS --first-pass PWD OLDPWD COMPASS BYPASS LR PATH NCCL_DEBUG PYTHONPATH OMP_NUM_THREADS CUDA_VISIBLE_DEVICES
"""


@pytest.mark.parametrize("name", SECRETS.split())
def test_secret_names_are_recognised(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ORDINARY.split())
def test_ordinary_names_are_not_taken_for_secrets(name: str) -> None:
    assert not is_secret(name)


def test_mask_environment_masks_only_secrets() -> None:
    env = mask_environment({"HF_TOKEN": "x", "LR": "1", "TOKENIZERS_PARALLELISM": "false"})
    assert env == {"HF_TOKEN": MASK, "LR": "1", "TOKENIZERS_PARALLELISM": "false"}
    assert lost_secrets(env) == ["HF_TOKEN"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("export HF_TOKEN=abc LR=2\nx=$HF_TOKEN", f"export HF_TOKEN={MASK} LR=2\nx=$HF_TOKEN"),
        ("export TOKENIZERS_PARALLELISM=false MAX_TOKENS=2048 author=ann", None),
        ('API_KEY="abc def" python x.py', f"API_KEY={MASK} python x.py"),
        ("API_KEY='abc \" def'; next", f"API_KEY={MASK}; next"),
        (r'API_KEY="a\" b"c\ d e', f"API_KEY={MASK} e"),
        ('API_KEY="abc def', f"API_KEY={MASK}"),
        ('PRIVATE_KEY="-----BEGIN\nabc\n-----END" srun x', f"PRIVATE_KEY={MASK} srun x"),
        ('TOKEN=$A TOKEN="$B" TOKEN=${C} TOKEN=${D:-} TOKEN=$(cat ~/.t) TOKEN="$(cat x)" TOKEN=`cat x`', None),
        ("TOKEN=${D:-abc def}; x", f"TOKEN={MASK}; x"),
        ("TOKEN=$'abc'", f"TOKEN={MASK}"),
        ("(TOKEN=abc)", f"(TOKEN={MASK})"),
        ("#SBATCH --export=ALL,HF_TOKEN=abc\n", f"#SBATCH --export=ALL,HF_TOKEN={MASK}\n"),
        ("python x.py --hf-token abc --lr 1", f"python x.py --hf-token {MASK} --lr 1"),
        ("python x.py --hf-token=abc --pad-token=x", f"python x.py --hf-token={MASK} --pad-token=x"),
        ("python x.py --hf-token \\\n  abc \\\n  --lr 1", f"python x.py --hf-token \\\n  {MASK} \\\n  --lr 1"),
        ("python x.py --use-auth-token --token --epochs 3", None),
        ("curl 'https://x/?token=abc&page=2'", f"curl 'https://x/?token={MASK}&page=2'"),
        ('if [ "$TOKEN" == abc ]; then', None),
        ("TOKEN= python x.py", None),
        ("API_KEY=a,HF_TOKEN=b x", f"API_KEY={MASK} x"),
        (
            "TOKEN=$(API_KEY=$(cat x) curl --password abc -u me)",
            f"TOKEN=$(API_KEY=$(cat x) curl --password {MASK} -u me)",
        ),
        ("TOKEN=$(curl \\\n  --password abc)\nx", f"TOKEN=$(curl \\\n  --password {MASK})\nx"),
        ("TOKEN=$(" * 9 + "abc)", "TOKEN=$(" * 8 + f"TOKEN={MASK}"),
        ('PASSWORD="$(abc"', f"PASSWORD={MASK}"),
    ],
)
def test_mask_script_text_masks_secret_values(text: str, shown: str | None) -> None:
    assert mask_script_text(text) == (text if shown is None else shown)


@pytest.mark.parametrize(
    "text",
    [
        "TOKEN=",
        "TOKEN=$",
        "TOKEN=${",
        "TOKEN=$(",
        "TOKEN=$(KEY=$(x)",
        "TOKEN='",
        'TOKEN=\\"',
        "TOKEN=\\\n",
        f"TOKEN={MASK}\n",
    ],
)
def test_masking_takes_time_linear_in_the_script_length(text: str) -> None:
    """Each of these took minutes to hours, when every name looked at the rest of the text anew."""
    script = f"#!/bin/sh\n#{text * (1_000_000 // len(text))}\n"
    began = time.process_time()
    mask_script_text(script)
    masked_lines(script)
    assert time.process_time() - began < 10


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_quoted_secret_is_masked_completely(secret: str) -> None:
    assert mask_script_text(f"export API_KEY={shlex.quote('z ' + secret)}\nsrun x") == f"export API_KEY={MASK}\nsrun x"


def test_mask_words_masks_secret_option_values() -> None:
    words = [
        "--hf-token=abc d",
        "--api-key",
        "k",
        "--lr=1",
        "--tokenizer",
        "gpt2",
        "--max-tokens=4",
        "--token",
        "--on",
        "A_KEY=x y",
    ]
    assert mask_words(words) == [
        f"--hf-token={MASK}", "--api-key", MASK, "--lr=1", "--tokenizer", "gpt2", "--max-tokens=4", "--token", "--on",
        f"A_KEY={MASK}",
    ]  # fmt: skip
    assert mask_words(["--export=ALL,HF_TOKEN=abc", "-c", "export TOKEN=abc; ls"]) == [
        f"--export=ALL,HF_TOKEN={MASK}", "-c", f"export TOKEN={MASK}; ls",
    ]  # fmt: skip


def test_masked_lines_finds_masks_only_at_secret_values() -> None:
    text = f"#!/bin/sh\n# {MASK} a banner {MASK}\nexport LR={MASK}\nexport API_KEY='{MASK}' A=1\nsrun x --hf-token {MASK}\n"
    assert masked_lines(text) == [(4, "API_KEY"), (5, "--hf-token")]
    assert masked_lines(mask_script_text("x\nAPI_KEY=abc\n")) == [(2, "API_KEY")]
    assert masked_names(["--hf-token", MASK, f"--api-key={MASK}", MASK, f"--lr={MASK}"]) == ["--hf-token", "--api-key"]
