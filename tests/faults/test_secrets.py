"""Passwords and tokens in the environment, in settings and in errors never appear in output or files."""

import base64
import gzip
import importlib
import json
import re
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpo_cli.redaction import HIDDEN, VARIABLE, masked, redact
from mcpo_cli.runs import provenance
from tests.cli.conftest import Cli, InProcess
from tests.faults.faulty_server import mlflow_server

PLANTED = {
    "HF_TOKEN": "hf_" + "PlantedFaceToken" * 2,
    "WANDB_API_KEY": "planted-wandb-0123456789abcdef",
    "MLFLOW_TRACKING_USERNAME": "somebody",
    "MLFLOW_TRACKING_PASSWORD": "planted/mlflow pass",
    "MLFLOW_TRACKING_TOKEN": "planted-mlflow-token",
    "AWS_SECRET_ACCESS_KEY": "planted+aws/secret",
    "AWS_SESSION_TOKEN": "planted-aws-session",
    "GOOGLE_API_KEY": "planted-google-key",
    "PGPASSWORD": "planted-pg",
    "DB_PWD": 'planted "quoted"',
}
IN_A_URL = "planted-url-password"
SECRETS = {*(value for name, value in PLANTED.items() if not name.endswith("USERNAME")), IN_A_URL}
"""A user's name is not a secret; in a URL it is removed with the password."""


def leaks(files: Iterable[Path]) -> set[str]:
    """`file: secret` for every secret in any of the files, also compressed ones, as text, in JSON and in base 64."""
    forms = {form: secret for secret in SECRETS for form in _forms(secret)}
    return {f"{path}: {secret}" for path in files for form, secret in forms.items() if form in _content(path)}


def _forms(secret: str) -> set[bytes]:
    whole = {base64.b64encode(f"{user}:{secret}".encode()) for user in ("somebody", "me")}
    return {secret.encode(), json.dumps(secret)[1:-1].encode(), *whole}


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return content + gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_runs_and_reports_hold_no_secret(tmp_path: Path, empty_store: Path) -> None:
    """Two runs, their table and report, and a run that fails, all logged to a server behind a password."""
    server = tmp_path / "server"
    server.mkdir()
    shutil.copy(empty_store, server / "server.db")
    cli = Cli(tmp_path / "home")
    with mlflow_server(server) as port:
        cli.env |= PLANTED | {"MLFLOW_TRACKING_URI": f"http://me:{IN_A_URL}@127.0.0.1:{port}"}
        made = cli("reproduce", "table1", "scale=smoke", "model=toy-s", "seed=0", "--debug")
        assert made.returncode == 0, made.stderr
        unreachable = ("warmup.target_accuracy=1", "warmup.max_steps=1", "seed=1")
        failed = cli("train", "scale=smoke", "method=grpo", *unreachable, "--debug")
        assert failed.returncode == 1, failed.stderr
        shown = cli("runs", "show", "grpo", "--json").stdout + cli("runs", "sync").stdout
    assert len(list((cli.home / "runs").iterdir())) == 3
    assert len(list(server.rglob("provenance.json"))) == 3
    assert leaks(files(tmp_path)) == set()
    said = made.stdout + made.stderr + failed.stdout + failed.stderr + shown
    assert [line for line in said.splitlines() if any(secret in line for secret in SECRETS)] == []


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)


SETTINGS = [
    f"compute.tracking_uri=http://me:{IN_A_URL}@127.0.0.1:5000",
    f"compute.tracking_uri='http://127.0.0.1:5000?token={IN_A_URL}'",
    f"model.path=https://{PLANTED['HF_TOKEN']}@huggingface.co/a/b",
    f"hf_token={PLANTED['HF_TOKEN']}",
    f"task.data_path=/data/{PLANTED['WANDB_API_KEY']}",
    "model.path=${oc.env:AWS_SECRET_ACCESS_KEY}",
    "model.name=${oc.env:PGPASSWORD}",
    "model.name=${oc.decode:'${oc.env:HOME}'}",
    f"seed={PLANTED['GOOGLE_API_KEY']}",
]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.usefixtures("planted")
def test_a_secret_cannot_be_a_setting(here: InProcess, setting: str) -> None:
    for verb in (("train", "--json"), ("train", "--debug"), ("train", "--dry-run", "table1", "seed=0")):
        result = here(*verb, setting)
        assert result.returncode == 2
        assert [secret for secret in SECRETS if secret in result.stdout + result.stderr] == []
    assert here.untouched()


@pytest.mark.usefixtures("planted")
def test_provenance_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:{IN_A_URL}@127.0.0.1")
    monkeypatch.setattr(provenance, "_git", lambda *words: f"{SECRETS} key = tokenizer.eos_token\n")
    provenance.write(tmp_path, ["mcpo", "train", f"wandb_api_key={IN_A_URL}", "max_tokens=4096", *SECRETS])
    assert leaks(files(tmp_path)) == set()
    record = json.loads((tmp_path / "provenance.json").read_text())
    assert record["command"][:4] == ["mcpo", "train", "wandb_api_key=***", "max_tokens=4096"]
    assert record["environment"]["MLFLOW_TRACKING_URI"] == "http://***@127.0.0.1"


CASES = {
    "http://u:p@h:5000/x": "http://***@h:5000/x",
    "mysql+pymysql://u:p/q@h/db": "mysql+pymysql://***@h/db",
    "https://token-of-mine@huggingface.co": "https://***@huggingface.co",
    "see http://host:5000/path, or me@example.org": "see http://host:5000/path, or me@example.org",
    "sqlite:////home/a@b/mlflow.db": "sqlite:////home/a@b/mlflow.db",
    "token=abc&page=2": "token=***&page=2",
    "--password=abc next": "--password=*** next",
    "Authorization: Bearer abc.def": "Authorization: Bearer ***",
    "at hf_" + "aB3" * 8 + ".": "at ***.",
    "AKIA" + "ABCD1234" * 2: "***",
    "max_tokens=4096 cluster.max_tokens_per_gpu=32768": "max_tokens=4096 cluster.max_tokens_per_gpu=32768",
    "{'password': 'planted pass phrase', 'n': 1}": "{'password': '***', 'n': 1}",
    "sent Bearer planted-abcdefghijk next": "sent Bearer *** next",
    "xoxb" + "-123456789012-planted": "***",
    "npm" + "_" + "aB3d" * 9: "***",
    "AccountName=me;AccountKey=pl/anted+==;Endpoint=x": "AccountName=me;AccountKey=***;Endpoint=x",
    "-----BEGIN RSA " + "PRIVATE KEY-----\nplanted\n-----END": "-----BEGIN RSA " + "PRIVATE KEY-----***-----END",
    "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----\nplanted\n-----END": "-----BEGIN PGP "
    + "PRIVATE KEY BLOCK-----***-----END",
    **{f"{prefix}{'aB3d' * 9} next": "*** next" for prefix in ("api_org_", "gsk_", "xai-", "pplx-", "r8_")},
    r"{\"password\": \"planted x\", \"n\": 1}": r"{\"password\": \"***\", \"n\": 1}",
    r'"token": "pla\"nted", "n"': '"token": "***", "n"',
    "mysql --password planted -u x": "mysql --password *** -u x",
    "DB_PWD=planted OLDPWD=/home/me": "DB_PWD=*** OLDPWD=/home/me",
    "db.example.org:5432:mydb:me:planted": "db.example.org:5432:mydb:me:***",
    "me:planted@db.example.org/x, a:b@localhost:5432": "***@db.example.org/x, ***@localhost:5432",
    "Cookie: session=planted; a=planted": "Cookie: ***",
    '{"cookie": "planted", "n": 1}': '{"cookie": "***", "n": 1}',
    "https://x.blob.net/a?sv=1&sig=planted%3D&x=1": "https://x.blob.net/a?sv=1&sig=***&x=1",
    "at 12:30@noon, file.py:12:34: E501": "at 12:30@noon, file.py:12:34: E501",
    "2026:11:24:13:45 reasoning_gym:basic a/b@main x:y@z": "2026:11:24:13:45 reasoning_gym:basic a/b@main x:y@z",
}


@pytest.mark.parametrize(("text", "clean"), CASES.items())
def test_what_is_taken_out(text: str, clean: str) -> None:
    assert redact(text) == clean
    assert redact(clean) == clean


DETECTORS = (
    *("artifactory.ArtifactoryDetector", "aws.AWSKeyDetector", "discord.DiscordBotTokenDetector"),
    *("github_token.GitHubTokenDetector", "gitlab_token.GitLabTokenDetector", "mailchimp.MailchimpDetector"),
    *("openai.OpenAIDetector", "pypi_token.PypiTokenDetector", "sendgrid.SendGridDetector", "slack.SlackDetector"),
    *("square_oauth.SquareOAuthDetector", "stripe.StripeDetector", "telegram_token.TelegramBotTokenDetector"),
    "twilio.TwilioKeyDetector",
)


@pytest.mark.parametrize("name", DETECTORS)
def test_what_detect_secrets_knows_by_its_shape_is_taken_out(name: str) -> None:
    module, _, kind = name.partition(".")
    shape = next(iter(getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), kind).denylist))
    ascii_only = re.compile(shape.pattern, shape.flags & ~re.UNICODE | re.ASCII)

    @settings(max_examples=20, database=None)
    @given(st.from_regex(ascii_only, fullmatch=True))
    def hidden(text: str) -> None:
        assert HIDDEN in redact(text), text

    hidden()


@pytest.mark.parametrize(
    ("names", "secret"),
    [
        (
            "PGPASSWORD MYSQL_PWD DB_PWD SSHPASS APIKEY GITHUB_PAT AWS_CREDENTIALS MY_AUTH DB_PASSPHRASE HF_TOKEN KEY "
            "LDAP_BINDPW DB_PW CI_JOB_JWT SLACK_WEBHOOK_URL HF_TOKEN_READ TOKEN_GITHUB OPENAI_APIKEY2 API_KEY_PROD "
            "WANDB_API_KEY_2 SECRET_ACCESS PASSWORD1",
            True,
        ),
        (
            "PWD OLDPWD PATH SSH_AUTH_SOCK MONKEY BYPASS MAX_TOKENS LESSKEY XPAT KEYBOARD HOME TOKENIZERS_PARALLELISM "
            "TOKEN_LIMIT HF_TOKEN_PATH",
            False,
        ),
    ],
)
def test_names_of_variables_that_hold_secrets(names: str, secret: bool) -> None:
    assert [name for name in names.split() if bool(VARIABLE.search(name)) != secret] == []


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ('{"url": "x", "api_key": "planted-7"}', "the key planted-7 is wrong"),
        ("host=db;password=planted-7;user=me", "planted-7"),
        ("--hf-token planted-7 --quiet", "token planted-7"),
        ("postgresql://me:before@planted-7@db/x", 'could not translate host name "planted-7@db"'),
    ],
)
def test_a_secret_within_a_value_of_the_environment_is_hidden(
    value: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTIONS", value)
    assert "planted" not in redact(printed)


def test_code_stays_code() -> None:
    assert masked("token = tokenizer.eos; password=getpass()") == "token = tokenizer.eos; password=getpass()"


SLOW = {
    "an address of 1 MB": "://a:" + "b" * 1_000_000,
    "beginnings of keys": "-----BEGIN " * 50_000,
    "an open quote": 'token="planted' + "a" * 1_000_000,
    "hosts": "a." * 300_000,
    "options": "--a-" * 100_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_redaction_takes_time_in_proportion_to_the_length(text: str) -> None:
    """A log may come from anybody."""
    began = time.process_time()
    assert len(redact(text)) <= 2 * len(text)
    assert time.process_time() - began < 30


@given(st.text(), st.sampled_from(sorted(SECRETS - {IN_A_URL})), st.text())
def test_a_value_of_the_environment_is_hidden_wherever_it_stands(before: str, secret: str, after: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PLANTED.items():
            patch.setenv(name, value)
        assert secret not in redact(before + secret + after)
        assert masked(masked(before + secret + after)) == masked(before + secret + after)
