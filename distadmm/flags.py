"""Flags from dataclasses, one parse for all ranks; nothing heavy is imported, for `entering` runs before numpy is."""

import dataclasses
import functools
import importlib
import json
import math
import os
import re
import signal
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from distadmm import __version__
from distadmm.errors import InputError, require, told
from distadmm.files import examples, read_bytes
from distadmm.structs import struct

T = TypeVar("T")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def entering(module: str) -> None:
    """One BLAS thread a rank, when `module` is being run as a command; nothing when it is imported.

    Twenty ranks that each start a thread a core are 24 to 100 times slower, and after numpy has been
    imported the setting has no effect.  A value the user has set is kept.  Until `launch` takes over, Ctrl-C
    ends the process without a traceback of a half-done import, and what a scheduler says is held back.
    """
    if module == "__main__":
        for name in _THREAD_VARIABLES:
            os.environ.setdefault(name, "1")
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR1))


def started(module: str) -> int:
    """Run `module` as a command: the module itself, of which nothing but the call of this has been run as __main__."""
    entering("__main__")
    return int(importlib.import_module(module).main())


class _Range(NamedTuple):
    """Which values a flag takes; numbers with a limit are finite."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    choices: tuple[Any, ...] | None = None

    def check(self, name: str, value: Any) -> None:
        """Refuse `value`, or what it holds; None stands for a flag that is not given."""
        for one in value if isinstance(value, tuple) else () if value is None else (value,):
            if self.choices is not None:
                known = ", ".join(map(str, self.choices))
                require(one in self.choices, f"{option(name)} is {one!r}; choose one of: {known}")
            elif self != _Range():
                holds = (
                    math.isfinite(one)
                    and (self.above is None or one > self.above)
                    and (self.at_least is None or one >= self.at_least)
                    and (self.below is None or one < self.below)
                    and (self.at_most is None or one <= self.at_most)
                )
                require(holds, f"{option(name)} is {one}; needed: {self._words(isinstance(one, float))}")

    def _words(self, real: bool) -> str:
        low = self.at_least if self.above is None else self.above
        high = self.at_most if self.below is None else self.below
        if high is None:
            words = f"{low:g}" if low else "zero"
            finite = "a finite number, " * real
            return f"{finite}{words} or more" if self.above is None else f"a finite number above {words}"
        if self.above is not None and self.below is not None:
            return f"between {low:g} and {high:g}"
        first = "" if low is None else f"{'from' if self.above is None else 'above'} {low:g} to "
        return f"{first}{'at most' if self.below is None else 'below'} {high:g}"


def flag(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    note: str = "",
    choices: Sequence[Any] | None = None,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    was: Mapping[str, Mapping[Any, Any]] | None = None,
    absent: Any = None,
) -> Any:
    """A dataclass field that is also a command-line flag.

    Its limits hold for each entry of a tuple; `build` refuses what breaks them, and so does a `struct` at once.
    `was` are the flag's names of the last release, each with the words that mean something in this one:
    they are taken, and said to be old.  `absent`: its value in the config.json of a release that did not have it.
    """
    taken = _Range(above, at_least, below, at_most, tuple(choices) if choices is not None else None)
    metadata: dict[str, Any] = {
        "help": help + note, "choices": taken.choices, "check": taken.check, "was": was or {},
        "absent": absent,
        "said": {"help": help, **taken._asdict(), "was": was},
    }  # fmt: skip
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def positional(metavar: str, *, help: str, default: Any = dataclasses.MISSING) -> Any:
    """A field that takes words without a flag: the one that is needed, or for a tuple all there are."""
    field = flag(default, help=help)
    return dataclasses.field(default=default, metadata={**field.metadata, "positional": metavar})


def again(cls: type, name: str, **changes: Any) -> Any:
    """The flag `name` of the group `cls` where another has other choices, another default, or a note on it."""
    field: dataclasses.Field[Any] = cls.__dataclass_fields__[name]  # type: ignore[attr-defined]
    return flag(**{"default": field.default, **field.metadata["said"], **changes})


@typing.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def flag_group(title: str) -> Callable[[type[T]], type[T]]:
    """A struct whose fields are flags, under this title on help pages."""

    def made(cls: type[T]) -> type[T]:
        cls.flags_title = title  # type: ignore[attr-defined]
        return struct(cls)

    return made


def option(name: str) -> str:
    """The flag of a field."""
    return "--" + name.rstrip("_").replace("_", "-")


ELSEWHERE = {  # what other tools call it
    "--eps": "--epsilon", "--lr": "--rate", "--learning-rate": "--rate", "--tol": "--stop-tolerance",
    "--iters": "--iterations", "--epochs": "--iterations", "--max-iter": "--iterations", "--graph": "--topology",
    "--dataset": "--data", "--output": "--out", "--l2": "--rho",
}  # fmt: skip


def nearest(word: str, known: Any) -> str | None:
    import difflib

    key = ELSEWHERE.get(f"--{word.replace('_', '-')}", "")[2:].replace("-", "_")
    meant = [one for one in (ELSEWHERE.get(word), key) if one in known]
    return next(iter(meant or difflib.get_close_matches(word, known, n=1, cutoff=0.7)), None)


def _convert(annotation: Any, text: Any, name: str) -> Any:
    """`text` from a command line or a configuration file, as the field's type."""
    if type(None) in typing.get_args(annotation):
        if text in (None, "none"):
            return None
        (annotation,) = [a for a in typing.get_args(annotation) if a is not type(None)]
    if typing.get_origin(annotation) is tuple:
        parts = text if isinstance(text, (list, tuple)) else [p for p in str(text).split(",") if p.strip()]
        of = typing.get_args(annotation)[0]
        words = [str(part) if of is str and isinstance(part, bool) else part for part in parts]  # labels
        return tuple(_convert(of, word, name) for word in words)
    try:
        if annotation is bool:
            return {"true": True, "false": False}[str(text).lower()]
        if isinstance(text, bool):
            raise ValueError
        if annotation is int:
            if isinstance(text, float) and text != int(text):
                raise ValueError
            powers = isinstance(text, str) and re.fullmatch(r"\d+[eE]\d+", text)  # 1e9
            return int(float(text) if powers else text)
        if isinstance(annotation, type) and issubclass(annotation, float):  # or a number that knows its unit
            return annotation(text)
        if annotation in (str, Path):
            if isinstance(text, (list, dict)) or (annotation is Path and not isinstance(text, (str, Path))):
                raise ValueError
            return annotation(text)  # a number as well: --eta takes one, or a name
    except (ValueError, KeyError, TypeError, OverflowError):
        kind = {int: "a whole number", float: "a number", bool: "true or false"}.get(annotation, "a text")
        kind = getattr(annotation, "needed", kind)
        raise InputError(f"{name} is {text!r}; needed: {kind}") from None
    raise TypeError(f"no flag can be made of a field of type {annotation!r} ({name})")


_FIELDS: dict[type, dict[str, tuple[dataclasses.Field[Any], Any]]] = {}  # of classes that were asked for


def fields_of(cls: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """The flag fields of a dataclass with their resolved types, by field name."""
    if cls not in _FIELDS:
        hints, known = typing.get_type_hints(cls), dataclasses.fields(cls)
        _FIELDS[cls] = {f.name: (f, hints[f.name]) for f in known if f.init and "help" in f.metadata}
    return _FIELDS[cls]


def table_of(*parts: Any) -> dict[str, Any]:
    """Flag name -> value, as `config.json` keeps it and `--config` reads it."""
    return {name.rstrip("_"): getattr(part, name) for part in parts for name in fields_of(type(part))}


def _add_flags(parser: Any, cls: type) -> None:
    import argparse

    group = parser.add_argument_group(getattr(cls, "flags_title", cls.__name__))
    for name, (field, annotation) in fields_of(cls).items():
        text = field.metadata["help"].replace("%", "%%")
        if word := field.metadata.get("positional"):
            several = "*" if typing.get_origin(annotation) is tuple else "?"
            parser.add_argument(name, metavar=word, nargs=several, default=argparse.SUPPRESS, help=text)
            continue
        if field.default is not dataclasses.MISSING and field.default not in (None, (), ""):
            shown = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
            text += f" (default: {shown})"
        given: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": text}
        if bool in (annotation, *typing.get_args(annotation)) and typing.get_origin(annotation) is not tuple:
            group.add_argument(option(name), action=argparse.BooleanOptionalAction, **given)
        else:
            choices = ",".join(map(str, field.metadata["choices"] or ()))
            metavar = f"{{{choices}}}" if choices else name.rstrip("_").upper()
            group.add_argument(option(name), metavar=metavar, **given)
        for old, words in field.metadata["was"].items():
            hidden: dict[str, Any] = {"dest": old, "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
            if True in words:
                hidden["action"] = argparse.BooleanOptionalAction
            if old != name:
                group.add_argument(option(old), **hidden)


def read_config(path: str | Path) -> dict[str, Any]:
    """Keys and values of a TOML file, or of the `config.json` of a run directory."""
    import tomllib

    path = Path(path)
    with told(f"cannot read --config {path}: REASON; give a TOML or config.json file"):
        content = read_bytes(path)
    with told(
        f"--config {path} is not readable: REASON; needed: key = value lines (TOML)",
        ValueError,
        AttributeError,
        RecursionError,
    ):
        if path.suffix == ".json":
            values = json.loads(content.decode(errors="surrogateescape"))
            values = values.get("config", values)
        else:
            values = tomllib.loads(content.decode())
        return {key.replace("-", "_"): value for key, value in values.items()}


def refuse_clashes(classes: Sequence[type]) -> None:
    """Two classes of one command with the same flag: whoever wrote the last one has to rename it."""
    of: dict[str, type] = {}
    for cls in classes:
        for name in fields_of(cls):
            first = of.setdefault(name.rstrip("_"), cls)
            require(
                first is cls,
                f"field {name} of {cls.__name__} becomes --{name.replace('_', '-')}, which is a flag of every run "
                f"already ({first.__name__}); rename the field",
            )


def build(classes: Sequence[type], values: dict[str, Any], source: str = "--config") -> tuple[Any, ...]:
    """Instances of `classes` from one flat table of values; an unknown key is named with the known ones."""
    refuse_clashes(classes)
    known = {name.rstrip("_"): name for cls in classes for name in fields_of(cls)}
    values = today(values, classes, source)
    for key in values:
        if key.rstrip("_") not in known:
            near = nearest(key, known)
            hint = f"did you mean {near}? " if near else ""
            raise InputError(f"{source}: unknown key {key!r}; {hint}known: {', '.join(sorted(known))}")
    built = []
    for cls in classes:
        arguments = {}
        for name, (field, annotation) in fields_of(cls).items():
            if name in values:
                arguments[name] = _convert(annotation, values[name], option(name))
                field.metadata["check"](name, arguments[name])
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                word = field.metadata.get("positional")
                what = f"no {word.lower()} is named" if word else f"{option(name)} is needed"
                among = field.metadata["choices"]
                listed = f"; choose one of: {', '.join(map(str, among))}" if among else ""
                raise InputError(f"{what}: {field.metadata['help']}{listed}")
        built.append(cls(**arguments))
    return tuple(built)


def parse(prog: str, description: str, classes: Sequence[type], argv: Sequence[str]) -> tuple[Any, ...]:
    """Instances of the dataclasses `classes` from `argv`; flags win over `--config FILE`."""
    import argparse  # here because rank 0 alone parses

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise InputError(f"{message}; see: {self.prog} --help")

    refuse_clashes(classes)
    parser = Parser(
        prog=f"python -m {prog}",
        description=description,
        epilog=examples(prog).replace("%", "%%"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"distadmm {__version__}")
    parser.add_argument("--config", metavar="FILE", help="TOML file, or config.json of a run; flags win")
    for cls in classes:
        _add_flags(parser, cls)
    given, unknown = parser.parse_known_args(list(argv))
    if unknown:
        seen = [a for a in parser._actions if a.help != "==SUPPRESS=="]  # no word of the last release
        options = [o for action in seen for o in action.option_strings]
        word = unknown[0].split("=")[0]
        near, meant = nearest(word, options) if word.startswith("-") else None, ELSEWHERE.get(word)
        other = f"its name is {meant}, which other algorithms or commands have; " if meant else ""
        if not word.startswith("-"):
            other = "several values of one flag stand with commas between them; "
        hint = f"did you mean {near}?" if near else f"{other}see: {parser.prog} --help"
        raise InputError(f"unknown argument {unknown[0]!r}; {hint}")
    flags = vars(given)
    config = flags.pop("config")
    flags, from_file = today(flags, classes, prog), {}
    if config:  # a run of the last release is no reader's fault
        kept = str(config).endswith(".json")
        read = read_config(config)
        from_file = of_a_run(read, classes) if kept else today(read, classes, f"{prog}: --config {config}")
    return build(classes, {**from_file, **flags}, source=f"--config {config}" if config else "flags")


def today(values: dict[str, Any], classes: Sequence[type], where: str = "") -> dict[str, Any]:
    """`values` with the names and words of this release; what is old is said, if there is a `where` to name."""
    fields = {name: pair for cls in classes for name, pair in fields_of(cls).items()}
    spelled = {name.rstrip("_"): name for name in fields}  # `lambda` for `lambda_`
    values = {spelled.get(key.rstrip("_"), key): value for key, value in values.items()}
    for name, (field, annotation) in fields.items():
        for old in field.metadata["was"].keys() & values.keys():
            given = new = values[old]
            if isinstance(given, (str, bool)):
                new = field.metadata["was"][old].get(given, given)
            elif isinstance(given, (list, tuple)) and annotation is str:  # numbers that are one text now
                new = ",".join(map(str, given)) or field.default
            if old == name and new == given:
                continue
            alone = old == name or name not in values
            require(alone, f"{option(old)} is now {option(name)}; give this one alone")
            del values[old]
            values[name] = new
            if where:
                said = f"{option(old)} {given} is now {option(name)} {new}"
                _tell(f"{where}: {said}; the old word goes with the next release")
    return values


def of_a_run(values: dict[str, Any], classes: Sequence[type]) -> dict[str, Any]:
    """`values` of a config.json, which may be of a release that lacked some flags, in the words of this one."""
    absent = {
        name: field.metadata["absent"] for cls in classes for name, (field, _) in fields_of(cls).items()
    }
    return {**{name: value for name, value in absent.items() if value is not None}, **today(values, classes)}


@functools.cache
def _tell(line: str) -> None:
    """Once, however many runs of a sweep it holds for."""
    print(line, file=sys.stderr)


def value_of(argv: Sequence[str], option: str) -> str | None:
    """What follows `option`, needed before it is known which flags there are."""
    for at, word in enumerate(argv):
        if word.startswith(option + "="):
            return word.partition("=")[2]
        if word == option and at + 1 < len(argv):
            return argv[at + 1]
    return None


def unknown_flag(message: str) -> str:
    """The flag that a refusal of an unknown argument names; empty where the refusal is of something else."""
    found = re.match(r"unknown argument '--([^'=]+)", message)
    return found[1] if found else ""
