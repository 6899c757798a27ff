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
# old name: where it is now; a name of an object has its module before a colon
MOVED = {
    "distadmm.topology": "distadmm.graphs.topology",
    "distadmm.check": "distadmm.commands.check",
    "distadmm.audit.white_box": "distadmm.commands.audit:white_box",
    "distadmm.methods.consensus_rate": "distadmm.methods.consensus.rate",
    "distadmm.methods.istdp.estimators": "distadmm.estimators",
    "distadmm.data.open_source": "distadmm.data.source:open_source",
    "distadmm.data.vertical": "distadmm.data.parties",
    "distadmm.privacy.accountant": "distadmm.privacy.accounting.accountant",
    "distadmm.privacy.events": "distadmm.privacy.accounting.events",
    "distadmm.privacy.ledger.Ledger": "distadmm.privacy.ledger.file:Ledger",
    "distadmm.privacy.mechanism": "distadmm.privacy.noise.mechanism",
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
    return sorted(__all__)


class _Moved:
    """Names that README and docs once showed at another place: they work for one more release, and warn.

    Asked last, for a module that nobody else finds; `from distadmm.data import open_source` asks for
    `distadmm.data.open_source` in the same way when the package has no such name.
    """

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in MOVED:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, cls)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: Any) -> None:
        return None

    @staticmethod
    def exec_module(module: Any) -> None:
        import warnings

        old = module.__name__
        home, _, name = MOVED[old].partition(":")
        found = importlib.import_module(home)
        sys.modules[old] = getattr(found, name) if name else found
        told = MOVED[old].replace(":", ".")
        warnings.warn(f"{old} is now {told}; the old name goes with the next release", FutureWarning, 2)


sys.meta_path.append(_Moved)
