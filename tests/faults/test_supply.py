"""The secret scan of `make check`, the advisory check of the pins and their hashes, against what they are to find."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from tests.store_runs import free_port

ROOT = Path(__file__).resolve().parents[2]
TOKENS = {
    "AWS": "key = '" + "AKIA" + "Q7ZD3VN2L6XWTR5M'",
    "GitHub": "token = '" + "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5'",
    "private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "URL": "uri = 'http://admin" + ":correct-horse@example.org'",
    "word": "password" + " = 'correct-horse-battery'",
}


@pytest.mark.slow
def test_the_scan_finds_a_secret(tmp_path: Path) -> None:
    """Of every kind, each in a file of its own."""
    for kind, line in TOKENS.items():
        (tmp_path / f"{kind}.py").write_text(f"# settings\n{line}\n")
    command = [ROOT / ".ci" / "secrets", *tmp_path.iterdir()]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stderr
    assert [kind for kind in TOKENS if f"{tmp_path / kind}.py:2" not in found.stdout] == []


@pytest.mark.slow
def test_the_scan_leaves_code_alone(tmp_path: Path) -> None:
    path = tmp_path / "settings.py"
    revision = f'revision = "{3**100:040x}"'
    path.write_text(f"stop = tokenizer.eos_token\n{revision}\nuri = 'http://127.0.0.1:5000'\n")
    subprocess.run([ROOT / ".ci" / "secrets", path], check=True)


class Database(BaseHTTPRequestHandler):
    """Answers as OSV does, or not: the server's `mode` says how."""

    def do_POST(self) -> None:
        """One query."""
        server: Any = self.server
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append(asked["package"]["name"])
        code, answer = 200, "{}"
        if server.mode == "error" or (server.mode == "dies" and len(server.asked) > 1):
            code = 500
        elif server.mode == "page":
            answer = "<html>Sign in to this network</html>"
        elif server.mode == "advisory" and asked["package"]["name"] == "filelock":
            answer = json.dumps({"vulns": [ADVISORY]})
        self.send_response(code)
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_details: Any) -> None:
        """Nothing."""


ADVISORY = {
    "id": "PYSEC-2026-1",
    "aliases": ["CVE-2026-1"],
    "summary": "Made up.",
    "details": "Made up.",
    "published": "2026-01-01T00:00:00Z",
    "affected": [
        {
            "package": {"name": "filelock", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}],
            "versions": ["3.16.0"],
        }
    ],
}


@contextmanager
def database(mode: str) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the packages that it was asked about."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        state: Any = server
        state.mode, state.asked = mode, []
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/query", state.asked
        server.shutdown()


def audit(url: str, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    pins = folder / "constraints.txt"
    pins.write_text("# pins\nfilelock==3.16.0\nrich==14.0.0\n")
    command = [sys.executable, str(ROOT / ".ci" / "audit.py"), str(pins), *options]
    return subprocess.run(command, env={**os.environ, "OSV_URL": url}, capture_output=True, text=True, check=False)


def test_an_audit_without_a_database_says_so_and_goes_on(tmp_path: Path) -> None:
    done = audit(f"http://127.0.0.1:{free_port()}", tmp_path)
    assert done.returncode == 0
    assert "the pinned dependencies were NOT checked" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["error", "page", "dies"])
def test_a_database_that_is_none_is_no_all_clear(tmp_path: Path, mode: str) -> None:
    with database(mode) as (url, _):
        done = audit(url, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the pinned dependencies were NOT checked" in done.stdout
    assert "0 advisories" not in done.stdout


@pytest.mark.slow
def test_an_audit_counts_what_it_asked(tmp_path: Path) -> None:
    with database("clean") as (url, asked):
        done = audit(url, tmp_path)
    assert done.returncode == 0
    assert {"filelock", "rich"} <= set(asked)
    assert "audit: 2 pins checked with" in done.stdout
    assert "0 advisories" in done.stdout


@pytest.mark.slow
def test_an_advisory_fails_the_audit_until_somebody_has_looked_at_it(tmp_path: Path) -> None:
    with database("advisory") as (url, _):
        found, looked_at = audit(url, tmp_path), audit(url, tmp_path, "--ignore-vuln", "PYSEC-2026-1")
    assert found.returncode == 1, found.stdout
    assert "filelock 3.16.0: PYSEC-2026-1, fixed in 99" in found.stdout
    assert looked_at.returncode == 0, looked_at.stdout


def pins(path: Path) -> dict[str, str]:
    """The version of each package that a file of pins has."""
    found = re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-verl.txt"])
def test_every_pin_has_hashes_but_torch(name: str) -> None:
    hashes = ROOT / ".ci" / "hashes" / name
    pinned = pins(ROOT / name)
    assert pins(hashes) == {package: version for package, version in pinned.items() if package != "torch"}
    blocks = re.split(r"^(?=\w)", hashes.read_text(), flags=re.MULTILINE)[1:]
    assert len(blocks) == len(pinned) - 1
    assert [block for block in blocks if not re.search(r"^    --hash=sha256:[0-9a-f]{64}\b", block, re.MULTILINE)] == []


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_setup_refuses_a_package_with_another_hash(tmp_path: Path, installer: str, changed: bool) -> None:
    """`make setup` of a project that pins one package: it goes on to torch, or stops at the changed package.

    One of the two finds the package, and the other knows of none.
    """
    package = tmp_path / "tiny"
    package.mkdir()
    (package / "tiny.py").write_text("")
    setup = "from setuptools import setup\nsetup(name='tiny', version='1.0', py_modules=['tiny'])\n"
    (package / "setup.py").write_text(setup)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, package]
    subprocess.run(build, check=True, capture_output=True)
    wheel = next(tmp_path.glob("*.whl"))
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "constraints.txt").write_text("tiny==1.0\ntorch==2.13.0\n")
    (tmp_path / "constraints-gym.txt").touch()
    hashes = tmp_path / ".ci" / "hashes" / "constraints.txt"
    hashes.parent.mkdir(parents=True)
    digest = hashlib.sha256(wheel.read_bytes() + b"changed" * changed).hexdigest()
    hashes.write_text(f"tiny==1.0 \\\n    --hash=sha256:{digest}\n")
    offline = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "UV_OFFLINE": "1"}
    offline |= {"PIP_FIND_LINKS": str(package), "UV_FIND_LINKS": str(package)}
    offline |= {f"{installer.upper()}_FIND_LINKS": str(tmp_path)}
    command = ["make", "setup", f"PYTHON={sys.executable}", f"UV={Path(sys.executable).with_name('uv')}"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **offline}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert ("DO NOT MATCH THE HASHES" in done.stderr) == (changed and installer == "pip")
    assert ("torch==2.13.0" in done.stderr) != changed
    assert bool(list(tmp_path.glob(".venv/lib/python*/site-packages/tiny.py"))) != changed
