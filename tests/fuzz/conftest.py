"""`bash launch/test tests/fuzz --soak 100000`: so many inputs, dealt out to the readers, in place of a seeded few."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", type=int, default=0, help="inputs to try in all, drawn anew (default: a seeded few)"
    )
