"""What pyproject.toml cannot say: the page for a package index, and a wheel of this tree alone.

DISTADMM_SITE=https://... (the folder of README.md on a public host) makes README's relative links absolute.  While the
project has no such host, they become the names of the files, which the sdist holds, and figures their captions.
"""

import os
import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def for_an_index(text: str, site: str) -> str:
    def there(link: re.Match[str]) -> str:
        figure, words, path = link.groups()
        if site:
            return f"{figure}[{words}]({site.rstrip('/')}/{path})"
        return "" if figure else words if path in words else f"{words} ({path})"

    return LINK.sub(there, text)


class BuildPy(build_py):
    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)  # modules of before that are gone
        super().run()


if __name__ == "__main__":
    page = for_an_index(Path("README.md").read_text(encoding="utf-8"), os.environ.get("DISTADMM_SITE", ""))
    setup(
        cmdclass={"build_py": BuildPy}, long_description=page, long_description_content_type="text/markdown"
    )
