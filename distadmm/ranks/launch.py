"""One way in and one way out for all ranks of a command."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from distadmm.errors import DONE, FAILURE, InputError
from distadmm.flags import read_config, value_of
from distadmm.ranks import world as ranks


def _listen() -> None:
    """From here on Ctrl-C is an exception again: files are closed, and one line is said."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _waiting(argv: Sequence[str]) -> str:
    """What --yield says, read ahead of the flags: the MPI library looks at it once, when it is loaded."""
    given, path = value_of(argv, "--yield"), value_of(argv, "--config")
    if given is not None:
        return given
    if path is not None:
        with contextlib.suppress(InputError):  # rank 0 will say what is wrong with the file
            return str(read_config(path).get("yield", "auto"))
    return "auto"


def reader_left() -> int:
    """Whoever read our output has seen enough (`... | head`): end quietly; what was written to files is whole."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def launch(
    prog: str,
    read: Callable[[list[str]], Any],
    work: Callable[[Any, Any], int],
    argv: Sequence[str] | None = None,
) -> int:
    """Run a command on all ranks: `read(argv)` on rank 0, then `work(config, world)` on every rank.

    The return value is the exit code.  An InputError is one line from rank 0 and the same code on all
    ranks; any other exception prints its traceback with its rank and ends the whole job.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a stand-in: a notebook's, or a test's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        world = ranks.connect(_waiting(arguments))
    except InputError as error:
        if os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")) == "0":
            print(f"{prog}: {error}", file=sys.stderr)
        return error.code

    def read_or_leave() -> tuple[str, Any]:
        try:
            return "config", read(arguments)
        except SystemExit as leaving:  # --help and --version
            return "exit", leaving.code or DONE

    try:
        _listen()
        kind, content = world.on_root(read_or_leave)
        if kind == "exit":
            return int(content)
        return work(content, world)
    except InputError as error:
        if world.is_root or not error.shared:
            print(f"{prog}: {error}", file=sys.stderr, flush=True)
        if world.size > 1 and not error.shared:
            world.abort(error.code)
        return error.code
    except BrokenPipeError:
        return reader_left()
    except KeyboardInterrupt:
        if world.is_root:
            print(f"{prog}: interrupted", file=sys.stderr, flush=True)
        if world.size > 1:
            world.abort(130)
        return 130
    except BaseException:
        world.report_failure()
        if world.size > 1:
            world.abort(FAILURE)
        return FAILURE
