"""One way in and one way out for all ranks of a command."""

import _thread
import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from distadmm.errors import DONE, FAILURE, InputError
from distadmm.flags import parse, read_config, value_of
from distadmm.ranks import launcher, watch
from distadmm.ranks import world as ranks
from distadmm.ranks.signals import Signals, hold_back

_LONG = 5.0  # seconds of silence after which a command says what it is at


def _listen() -> None:
    """From here on Ctrl-C is an exception again: files are closed, and one line is said."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _ahead(argv: Sequence[str]) -> tuple[str, float | None]:
    """What --yield and --stall-timeout say, read ahead of the flags: they matter before there is MPI."""
    given, limit, path = (value_of(argv, name) for name in ("--yield", "--stall-timeout", "--config"))
    table: dict[str, Any] = {}
    if path is not None and None in (given, limit):
        with contextlib.suppress(InputError):  # rank 0 will say what is wrong with the file
            table = read_config(path)
    found = None
    with contextlib.suppress(TypeError, ValueError, KeyError):
        found = float(limit or table["stall_timeout"])
    return given or str(table.get("yield", "auto")), found


@contextlib.contextmanager
def told_if_long(prog: str, what: str, speaks: bool) -> Iterator[None]:
    """Say what a command is at, once, where that takes long and this rank `speaks`."""
    over = _thread.allocate_lock()

    def tell() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
        if not over.acquire(timeout=_LONG):
            print(f"{prog}: {what}", file=sys.stderr, flush=True)

    if speaks:
        over.acquire()
        # Not `threading`: it is a module more, and nobody joins this thread.
        _thread.start_new_thread(tell, ())
    try:
        yield
    finally:
        if speaks:
            over.release()


def reader_left() -> int:
    """Whoever read our output has seen enough (`... | head`): end quietly; what was written to files is whole."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def launch(
    prog: str,
    read: Callable[[list[str]], Any],
    work: Callable[[Any, Any], int],
    argv: Sequence[str] | None = None,
    *,
    guard: float = 0.0,
) -> int:
    """Run a command on all ranks: `read(argv)` on rank 0, then `work(config, world)` on every rank.

    The return value is the exit code.  An InputError is one line from rank 0 and the same code on all
    ranks; any other exception prints its traceback with its rank and ends the whole job.  With `guard`, the seconds
    that --stall-timeout has by default, a watchdog looks after the ranks from here until all leave.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a stand-in: a notebook's, or a test's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    waiting, limit = _ahead(arguments)
    if guard:
        hold_back()  # also in the thread that looks
    else:
        Signals.let_through()
    try:
        # The ranks of another command's job may not all come by here: nobody looks after them.
        if not guard or "mpi4py.MPI" in sys.modules:
            return _launch(prog, read, work, arguments, waiting, watch.Watchdog())
        with watch.Watchdog(guard if limit is None else limit, *launcher.place()) as dog:
            return _launch(prog, read, work, arguments, waiting, dog, guarded=True)
    finally:
        Signals.let_through()


def _launch(
    prog: str,
    read: Any,
    work: Any,
    arguments: list[str],
    waiting: str,
    dog: watch.Watchdog,
    *,
    guarded: bool = False,
) -> int:
    try:
        atexit.register(dog.stop)  # runs after what ends the library
        world = ranks.connect(waiting)
    except InputError as error:
        if launcher.place()[0] == 0:
            print(f"{prog}: {error}", file=sys.stderr)
        return error.code
    if guarded:
        atexit.register(dog.until_the_end)  # after this, what ends the library
    world.dog, world.signals = dog, Signals(dog.tell, dog.told)
    if guarded and world.size > 1:
        world.barrier()
        dog.met()

    def leave(number: int) -> None:
        if dog.speaks():
            told = f"{prog}: ended by signal {number} before anything was begun; the same command starts it\n"
            os.write(2, told.encode())
        if world.size > 1:
            world.abort(128 + number)
        os._exit(128 + number)

    def read_or_leave() -> tuple[str, Any]:
        try:
            return "config", read(arguments)
        except SystemExit as leaving:  # --help and --version
            return "exit", leaving.code or DONE

    try:
        _listen()
        if guarded:
            world.signals.take_over(leave)
        else:
            Signals.let_through()
        kind, content = world.on_root(read_or_leave)
        if kind == "exit":
            return int(content)
        return work(content, world)
    except InputError as error:
        if world.is_root or not error.shared:
            print(f"{prog}: {error}", file=sys.stderr, flush=True)
        if world.size > 1 and not error.shared:
            world.abort(error.code)
        if world.size > 1 and guarded and not world.gone:
            Signals.stop_hearing()
            world.barrier()
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


def command(
    prog: str, read: Callable[[list[str]], Any], work: Callable[[Any, ranks.World], int]
) -> Callable[..., int]:
    """The `main` of a command, which takes its words or those of the command line."""
    return partial(launch, prog, read, work)


def with_flags(
    prog: str, doc: str | None, asked: type, work: Callable[[Any, ranks.World], int]
) -> Callable[..., int]:
    """The same of a command of flags of `asked`."""
    return command(prog, lambda words: parse(prog, doc or "", [asked], words)[0], work)


def say(prog: str, doc: str | None, asked: type | None, answer: Callable[[Any], str]) -> Callable[..., int]:
    """The same of one that one rank alone works out: flags of `asked` in, what `answer` makes of them printed."""
    groups = [asked] if asked else []

    def work(options: Sequence[Any], world: ranks.World) -> int:
        text = world.on_root(lambda: answer(options[0] if options else None))
        if world.is_root:
            print(text)
        return DONE

    return command(prog, lambda words: parse(prog, doc or "", groups, words), work)
