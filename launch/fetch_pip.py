"""Put pip into this environment, for Pythons that come without pip and ensurepip (bare Debian).

Run by an environment's own Python.  The newest pip wheel is taken from the registry that PIP_INDEX_URL names,
its hash compared with the one the registry states, and pip then installs itself from it.
"""

import hashlib
import html
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
LINK = re.compile(r'<a\s[^>]*href="([^"]*/pip-([0-9.]+)-py3-none-any\.whl)#sha256=([0-9a-f]{64})"([^>]*)>')


def newest(page: str) -> tuple[str, str]:
    """(address, sha256) of the newest released wheel that runs on this Python."""
    found = []
    for address, version, digest, attributes in LINK.findall(page):
        least = re.search(r'requires-python="[^"]*?>=3\.(\d+)', html.unescape(attributes))
        if least is None or int(least[1]) <= sys.version_info[1]:
            found.append(([int(part) for part in version.split(".")], address, digest))
    if not found:
        raise OSError("no wheel of pip there")
    _, address, digest = max(found)
    return urllib.parse.urljoin(INDEX, html.unescape(address)), digest


def main() -> int:
    try:
        with urllib.request.urlopen(INDEX, timeout=60) as page:
            address, digest = newest(page.read().decode())
        with urllib.request.urlopen(address, timeout=60) as file:
            wheel = file.read()
        if hashlib.sha256(wheel).hexdigest() != digest:
            raise OSError("the wheel's hash is not the stated one")
    except OSError as error:
        print(f"could not fetch pip: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, address.rpartition("/")[2])
        with open(path, "wb") as file:
            file.write(wheel)
        command = [sys.executable, f"{path}/pip", "install", "--quiet", "--no-index", path]
        return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
