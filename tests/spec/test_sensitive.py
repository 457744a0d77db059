"""What may let somebody in is known by its name or its form, and hidden where people see it."""

from __future__ import annotations

import pytest

from jobctl.jobspec.spec.sensitive import is_sensitive, masked, masked_text, masked_words

SECRET_NAMES = (
    "HF_TOKEN --hub_token API_TOKENS access-token hubToken HFTOKEN NEW_TOKEN adminToken TOKEN token_file MY_SECRET PGPASSWORD apiKey "
    "WANDB_API_KEY passWord PASSPHRASE DB_PASS --pass DB_PASS_2 SSHPASS MYSQL_PWD --db-pwd WANDB_KEY AZURE_STORAGE_KEY SAS_KEY "
    "--wandb-key OTHER_KEY SENTRY_DSN SLACK_WEBHOOK_URL webHookUrl DATABASE_URL REDIS_AUTH --auth=me:it GITHUB_PAT CONNECTION_STRING"
)
OPEN_NAMES = (
    "TOKENIZERS_PARALLELISM --tokenizer --max-tokens --num_tokens maxNewTokens tokens_per_batch n_tokens pad_token_id TOKENIZED_DATA "
    "max_token_length MAX_TOKENS KEYBOARD PASSES --num-passes NUM_PASS --first-pass bypass compass MASTER_PORT NCCL_SOCKET_IFNAME "
    "NCCL_IB_HCA PWD OLDPWD TEXT_KEY IMAGE_KEY LABEL_KEY --input_key --key PUBLIC_KEY SORT_KEY AUTH_TYPE SSH_AUTH_SOCK --author PATH PATTERN --patience"
)


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize("name", OPEN_NAMES.split())
def test_names_of_other_things_are_known(name: str) -> None:
    assert not is_sensitive(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://p:1/x", "http://p:1/x"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("git+https://github.com/x/y@v1", "git+https://github.com/x/y@v1"),
        ("ssh://git@h/x", "ssh://…@h/x"),
        ("postgres://u:p@h/db", "postgres://…@h/db"),
        ("postgres://u:p@ss@h/db", "postgres://…@h/db"),  # characters that should have been quoted
        ("redis://:pa/ss@h", "redis://…@h"),
        ("amqp://u:1/p?q#r@h", "amqp://…@h"),
        ("curl http://u:p@h/x me@y", "curl http://…@h/x me@y"),
        ("https://h/x?sig=abc", "https://h/x?sig=…"),
        ("https://h/x?page=1&X-Amz-Signature=abc&size=2", "https://h/x?page=1&X-Amz-Signature=…&size=2"),
        ("https://h/x?access_token=abc#jwt=def", "https://h/x?access_token=…#jwt=…"),
        ("--hub hf_abcdefghijklmnopqrstuvwxyz", "--hub …"),
    ],
)
def test_what_lets_somebody_in_is_hidden_in_texts(text: str, shown: str) -> None:
    assert masked_text(text) == shown


def test_secrets_are_hidden_in_whole_values() -> None:
    value = {"args": ["--api-key", "geheim", "--lr", 1], "env": {"DB_PASS": "geheim", "LR": "1", "NONE": None}}
    assert masked("", value) == {
        "args": ["(not shown)", "(not shown)", "--lr", 1],
        "env": {"DB_PASS": "(not shown)", "LR": "1"},
    }


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--token", "x", "y"], ["(not shown)", "(not shown)", "y"]),
        (["--token=x", "y"], ["(not shown)", "y"]),
        (["--data", "/data/c4_secrets", "--lr", "1"], ["--data", "(not shown)", "--lr", "1"]),
        (["login --token x", "pip install y"], ["(not shown)", "pip install y"]),  # commands of `setup`
    ],
)
def test_only_an_option_hides_the_next_word(words: list[str], shown: list[str]) -> None:
    assert list(masked_words(words)) == shown
