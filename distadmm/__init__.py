"""Private distributed ADMM over real message passing.

    import distadmm
    run = distadmm.solve("admm", data="adult", topology="ring:20", iterations=50)

Importing this package does nothing else: no rank is looked up, no thread count set, no logging configured.
"""

import importlib
import sys
from typing import Any

__version__ = "0.2.0"

_EXPORTS = {
    "solve": "distadmm.radmm",
    "Run": "distadmm.radmm",
    "register": "distadmm.algorithm",
    "Node": "distadmm.algorithm",
    "Planned": "distadmm.algorithm",
    "flag": "distadmm.flags",
    "Mapping": "distadmm.data.mapping",
}
__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    if name == "audit":  # of 0.1.0 a module, whose `white_box` was shown as its attribute
        module = importlib.import_module("distadmm.audit")
        vars(module)["__getattr__"] = lambda part: importlib.import_module(f"distadmm.audit.{part}")
        return module
    raise AttributeError(f"module 'distadmm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])


class _Moved:
    """Asked last, for a module that nobody else finds: what an old name stands for now."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("distadmm.") or name == "distadmm.moved":
            return None
        from distadmm import moved

        return moved.find_spec(name)


sys.meta_path.append(_Moved)
