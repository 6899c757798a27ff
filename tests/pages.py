"""README and docs as what they ask a reader to type: one bash script and one Python script a page.

A command is a line of a code block that begins with `$ `, or with a word of `COMMANDS`; `\\` at its end goes on.
`runs/...` stands for the newest run directory.  Python blocks of a page share their names; what they presume,
`tests/page_names.py` makes.
A comment in the line above a block says what is special about it, and a reader of the page does not see it:

    <!-- not run: it makes an environment (tests/test_launch.py) -->
    <!-- exit code 2 -->
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).parent.parent
PAGES = [HOME / "README.md", *sorted((HOME / "docs").rglob("*.md")), HOME / "benchmarks" / "README.md"]
COMMANDS = r"(?:python|mpiexec|distadmm|bash|sh|printf|sbatch|srun|docker|export|\.|[A-Z_]+=\S+) "
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n+)?"
    r"(?:^```(?P<tongue>\w*)\n(?P<fenced>.*?)^```$|(?P<indented>(?:^    [^\n]*\n)+))",
    re.M | re.S,
)


class Block(NamedTuple):
    line: int
    tongue: str
    text: str
    unrun: str = ""  # why it is not run
    code: int = 0  # what its commands of distadmm and benchmarks end with

    @property
    def commands(self) -> list[str]:
        """Without prompts, each in one line."""
        joined = self.text.replace("\\\n", " ")
        marked = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
        bare = [line for line in joined.splitlines() if re.match(COMMANDS, line)]
        return marked if marked or self.tongue not in ("", "bash") else bare


def blocks(page: Path) -> list[Block]:
    text, found = page.read_text(), []
    for match in BLOCK.finditer(text):
        mark = match["mark"] or ""
        body = match["fenced"]
        if body is None:
            body = re.sub(r"^    ", "", match["indented"], flags=re.M)
        unrun = mark.removeprefix("not run: ") if mark.startswith("not run: ") else ""
        code = int(mark.removeprefix("exit code ")) if mark.startswith("exit code ") else 0
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(line, match["tongue"] or "", body, unrun, code))
    return found


def commands(page: Path) -> list[tuple[int, str, int]]:
    """(line of the block, command, exit code) of all that is run."""
    found = []
    for block in blocks(page):
        if block.tongue == "python" or block.unrun:
            continue
        found += [
            (block.line, c, block.code * ("distadmm" in c or "benchmarks/" in c)) for c in block.commands
        ]
    return found


def script(page: Path) -> str:
    """All commands of a page, each with its exit code checked; tests that a page names are only looked for."""
    lines = ["newest() { ls -td runs/*/config.json */config.json 2>/dev/null | head -n 1 | xargs dirname; }"]
    for line, command, code in commands(page):
        command = re.sub(r"runs/\.\.\.", "$(newest)", command)
        if " -m pytest " in command:
            command = command.partition("#")[0] + " --collect-only"
        lines += [
            f"echo {_quoted(f'line {line}: {command}')}",
            command,
            f'code=$?; [ "$code" = {code} ] || {{ echo "line {line}: exit code $code, not {code}"; exit 1; }}',
        ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def snippets(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.tongue == "python" and not block.unrun]
