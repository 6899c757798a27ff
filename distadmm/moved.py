"""Names that README and docs once showed at another place: they work for one more release, and warn.

The package's finder asks here, last of all, for a module that nobody else finds; `from distadmm.data import
open_source` asks for `distadmm.data.open_source` in the same way when the package has no such name.
"""

import importlib
import importlib.machinery
import sys
import warnings
from types import ModuleType

# old name: where it is now; a name of an object has its module before a colon
NOW = {
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


def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    return importlib.machinery.ModuleSpec(name, _Elsewhere) if name in NOW else None  # type: ignore[arg-type]


class _Elsewhere:
    """A loader that puts what the new name has in the place of the old one."""

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        old = module.__name__
        home, _, name = NOW[old].partition(":")
        found = importlib.import_module(home)
        sys.modules[old] = getattr(found, name) if name else found
        told = NOW[old].replace(":", ".")
        warnings.warn(f"{old} is now {told}; the old name goes with the next release", FutureWarning, 2)
