"""A programme in which one rank meets a fault: python driver.py RANK FAULT WHERE CALL PROGRAMME FLAGS...

WHERE is a phase of the shell, or module:name; the fault is met where that is called for the CALL-th time.
"""

import importlib
import os
import signal
import sys
import time

from distadmm.flags import entering

entering("__main__")

PLACES = {
    "start-up": "distadmm.ranks.world:connect",
    "reading": "{}.prepare",
    "pricing": "{}.price",
    "set-up": "distadmm.run.directory:start",
    "solving": "{}.solve",
    "iterating": "distadmm.run.loop:stepped",
    "writing": "distadmm.run.directory:finish",
    "leaving": "distadmm.ranks.world:World.leave",
}


def meet(fault: str) -> None:
    """SIGSTOP and other signals, `doze:SECONDS`, or an exception by name."""
    if fault.startswith("doze:"):
        time.sleep(float(fault[5:]))
    elif fault.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, fault))
    else:
        raise getattr(__import__("builtins"), fault)(f"{fault} by request")


def main(rank: str, fault: str, where: str, call: str, programme: str, *flags: str) -> int:
    module = importlib.import_module(f"distadmm.{programme}")
    kind = type(module.PROGRAMME)
    place = PLACES.get(where, where).format(f"{kind.__module__}:{kind.__name__}")
    owner = importlib.import_module(place.partition(":")[0])
    *path, name = place.partition(":")[2].split(".")
    for part in path:
        owner = getattr(owner, part)
    plain, calls = getattr(owner, name), []

    def faulty(*given, **named):
        calls.append(1)
        here = os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        slow = fault.startswith("slow:")
        if here in rank.split(",") and (slow or len(calls) == int(call)):
            time.sleep(float(fault[5:])) if slow else meet(fault)
        return plain(*given, **named)

    setattr(owner, name, faulty)
    return module.main(list(flags))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
