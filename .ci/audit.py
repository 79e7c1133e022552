"""Looks up the pinned dependencies in OSV's advisories (osv.dev); exit 1 if one has an advisory.

If no database answers, it says so and exits with 0, because a check must not depend on a network. OSV_URL sets another
address. Further options go to pip-audit, such as `--ignore-vuln ID` for a reviewed advisory.

Usage: audit.py CONSTRAINTS [OPTION OF PIP-AUDIT]...
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

OSV = "https://api.osv.dev/v1/query"
PROBE = {"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "26.0"}
PROBE_SECONDS, AUDIT_SECONDS = 5.0, 180.0


def main(pins: str, *options: str) -> int:
    url = os.environ.get("OSV_URL", OSV)
    if why := unreachable(url):
        return skipped(url, why)
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", "osv", "--osv-url", url]
    # Check only the pins: resolve and install nothing, and query no package index.
    command += ["--requirement", pins, "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=AUDIT_SECONDS, check=False)
        pinned = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return skipped(url, f"timed out after {AUDIT_SECONDS:.0f} seconds")
    except ValueError:
        return skipped(url, (done.stderr.strip() or "no answer").splitlines()[-1])
    left = [one["name"] for one in pinned if "skip_reason" in one]
    advisories = [(one, advisory) for one in pinned for advisory in one.get("vulns", [])]
    for one, advisory in advisories:
        fixed = ", ".join(advisory["fix_versions"]) or "no version yet"
        print(f"audit: {one['name']} {one['version']}: {advisory['id']}, fixed in {fixed}")
    print(f"audit: {len(pinned) - len(left)} pins checked with {url}, {len(advisories)} advisories")
    if left:
        print(f"audit: unknown to the database: {', '.join(left)}")
    return 1 if advisories else 0


def unreachable(url: str) -> str:
    """The reason why the database does not answer; empty if it does."""
    request = urllib.request.Request(url, json.dumps(PROBE).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PROBE_SECONDS) as response:
            answer = json.load(response)
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__
    return "" if isinstance(answer, dict) else "its answer is not in OSV's format"


def skipped(url: str, why: str) -> int:
    print(f"audit: no advisory database at {url} ({why}): the pinned dependencies were NOT checked")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
