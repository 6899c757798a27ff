"""Every file that the package reads: how a whole one is made, and by which command or function it is read."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from distadmm import funnel, ias, radmm, sharing
from distadmm.commands import apply, export, grid, keys, ledger, predict, report, status, sweep, transcript
from distadmm.data.csvfile import CsvFile
from distadmm.data.joint import read_inferred, read_joint
from distadmm.data.mapping import Mapping
from distadmm.data.schema import read_schema
from distadmm.data.source import open_source
from distadmm.errors import InputError
from distadmm.graphs import topology
from distadmm.privacy.ledger.account import Account
from distadmm.privacy.noise import signing

QUIET = ["--progress", "none", "--observe", "none"]
TINY = ["--data", "tiny", "--topology", "er5", "--checkpoint-every", "2", "--progress", "none"]
NOISE = ["--epsilon", "4", "--adjacency", "replace", "--rng", "simulation"]


class Reader(NamedTuple):
    made: Callable[[Path], Path]  # in a folder of its own; the file that is to be damaged
    read: Callable[[Path], object]  # the exit code of a command, or what a function made of it


def _written(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return made


def _saved(name: str, save: Callable[[Path], Any]) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        save(folder / name)
        return folder / name

    return made


def refused(function: Callable[[Path], object]) -> Callable[[Path], object]:
    """A function that raises an `InputError` is a command that is refused in a line."""

    def read(path: Path) -> object:
        try:
            function(path)
        except InputError as error:
            return error.code if "\n" not in str(error) else str(error)
        return 0

    return read


_CSV = "age,job,weight,y\n" + "".join(
    f"{20 + i},{'cook' if i % 3 else 'pilot'},{50 + 2 * i},{i % 2}\n" for i in range(12)
)
_SCHEMA = """
target = "y"
missing = ["?", "NA"]
[columns]
age = { max = 100, missing = 40, missing_indicator = true }
job = { values = ["cook", "pilot"], missing_indicator = true }
weight = { min = 50, max = 200, missing = 75 }
"""
_LIBSVM = "".join(f"{(-1) ** i:+d} 1:{i / 12} 3:{1 - i / 15} 7:0.5\n" for i in range(12))
_TOML = (
    'algorithm = "admm"\ndata = "tiny"\ntopology = "ring:4"\niterations = 3\neta = 0.5\nprogress = "none"\n'
)
_SWEEP = f'{_TOML}seed = [0, 1]\n\n[[run]]\nalgorithm = "gossip"\n'
_X, _Y = np.linspace(-1, 1, 36).reshape(12, 3), np.resize([1.0, -1.0], 12)
_P = np.array([[0.75, 0.25], [0.2, 0.8]])


def _rows(path: Path) -> object:
    source = open_source(str(path))
    return source.node(0, 2), source.node(1, 2)


def _parquet(path: Path) -> None:
    from pyarrow import parquet, table

    parquet.write_table(table({"a": _X[:, 0], "b": _X[:, 1], "y": _Y}), path)


def _with_schema(path: Path) -> object:
    schema = path.parent / "schema.toml"
    schema.write_text(_SCHEMA)
    return CsvFile(path, schema=read_schema(schema)).read()


def _dry(path: Path) -> int:
    return radmm.main(["--config", str(path), "--dry-run"])


def _graph(write: Callable[[Any, Any], Any], suffix: str) -> Reader:
    def save(path: Path) -> None:
        write(nx.relabel_nodes(nx.cycle_graph(6), str), path)

    def read(path: Path) -> object:
        for name in ("load", "load_changing"):
            with contextlib.suppress(InputError) if name == "load_changing" else contextlib.nullcontext():
                getattr(topology, name)(str(path))
        return 0

    return Reader(_saved(f"graph{suffix}", save), refused(read))


def _node_link(graph: Any, path: Path) -> None:
    import json

    path.write_text(json.dumps(nx.node_link_data(graph, edges="links")))


def _matrix(graph: Any, path: Path) -> None:
    A = nx.to_numpy_array(graph)
    np.save(path, A) if path.suffix == ".npy" else np.savetxt(path, A, delimiter=",", fmt="%d")


def run(kind: str, folder: Path) -> Path:
    """A run directory of a programme, made once."""
    out = folder / kind
    words = {
        "radmm": [*TINY, "--iterations", "4", *NOISE, "--observe", "2"],
        "sharing": ["--data", "tiny", "--split", "8,12,10", "--iterations", "3", "--checkpoint-every", "2", *QUIET],
        "ias": ["--problem", "gauss", "--f", "js", "--beta", "0.6", "--restarts", "2"],
        "funnel": ["--problem", "synthetic-unif", "--points", "1"],
    }[kind]  # fmt: skip
    main = {"radmm": radmm.main, "sharing": sharing.main, "ias": ias.main, "funnel": funnel.main}[kind]
    assert main([*words, "--out", str(out)]) == 0
    return out


_RUNS: dict[str, Path] = {}
_POINT = grid.Point("s0", ("--seed=0",))


def _of_a_run(kind: str, name: str, *commands: Callable[[Path], object]) -> Reader:
    """A file of a run directory, which is what the commands are told of."""

    def made(folder: Path) -> Path:
        if kind not in _RUNS:
            _RUNS[kind] = run(kind, folder.parent)
        shutil.copytree(_RUNS[kind], folder / "run")
        (path,) = folder.glob(f"run/{name}")
        return path

    def read(path: Path) -> list[object]:
        top = next(parent for parent in path.parents if parent.name == "run")
        return [command(top) for command in commands]

    return Reader(made, read)


def _report(top: Path) -> int:
    return report.main([str(top), "--out", str(top.parent / "o.html")])


def _status(top: Path) -> int:
    return status.main([str(top)])


def _predict(top: Path) -> int:
    return predict.main([str(top), "--data", "tiny", "--out", str(top.parent / "o.csv")])


def _export(top: Path) -> int:
    return export.main([str(top), "--out", str(top.parent / "o.json")])


def _resume(top: Path) -> int:
    return radmm.main(["--resume", str(top), "--iterations", "6"])


def _resume_sharing(top: Path) -> int:
    return sharing.main(["--resume", str(top), "--iterations", "5"])


def _show(top: Path) -> int:
    return ledger.main(["show", str(top)])


def _verify(top: Path) -> int:
    return ledger.main(["verify", str(top)])


def _certificate(top: Path) -> int:
    return ledger.main(["certificate", str(top), "--out", str(top.parent / "o.html")])


def _apply(top: Path) -> int:
    (top.parent / "t.csv").write_text("x\n0\n1\n2\n")
    return apply.main([str(top), "--data", str(top.parent / "t.csv"), "--out", str(top.parent / "o.csv")])


def _transcript(top: Path) -> object:
    return refused(transcript.of_run)(top)


def _a_sweep(folder: Path) -> Path:
    """What a sweep notes of a run that it has made."""
    grid.keep_record(folder, [_POINT])
    _POINT.folder(folder).mkdir()
    return folder / grid.RECORD


def _keys(folder: Path) -> Path:
    keys.main([str(folder / "k"), "--make", "0-2"])
    return folder / "k" / keys.PEERS


def _account(folder: Path) -> Path:
    path = folder / "account.jsonl"
    words = ["--data", "tiny", "--topology", "ring:3", "--iterations", "2", *NOISE[:-1], "secure", *QUIET]
    assert radmm.main([*words, "--account", str(path), "--out", str(folder / "run")]) == 0
    return path


READERS: dict[str, Reader] = {
    "csv": Reader(_written("rows.csv", _CSV.replace("cook", "1").replace("pilot", "2")), refused(_rows)),
    "csv with a schema": Reader(_written("rows.csv", _CSV), refused(_with_schema)),
    "libsvm": Reader(_written("rows.libsvm", _LIBSVM), refused(_rows)),
    "parquet": Reader(_saved("rows.parquet", _parquet), refused(_rows)),
    "npz": Reader(_saved("rows.npz", lambda path: np.savez(path, X=_X, y=_Y)), refused(_rows)),
    "schema": Reader(_written("schema.toml", _SCHEMA), refused(read_schema)),
    "toml": Reader(_written("run.toml", _TOML), _dry),
    "sweep": Reader(_written("sweep.toml", _SWEEP), lambda path: sweep.main([str(path), "--list"])),
    "sweep's record": Reader(_a_sweep, refused(lambda path: grid.keep_record(path.parent, [_POINT]))),
    "joint": Reader(_saved("joint.npz", lambda path: np.savez(path, P=_P / 2)), refused(read_joint)),
    "joint csv": Reader(_written("joint.csv", ",a,b\nc,0.3,0.2\nd,0.1,0.4\n"), refused(read_joint)),
    "inferred": Reader(_saved("p.npz", lambda path: np.savez(path, A=_P, P_Y=_P[0])), refused(read_inferred)),
    "mapping": Reader(_saved("mapping.npz", lambda p: _a_mapping().save(p)), refused(Mapping.load)),
    "mapping csv": Reader(_saved("mapping.csv", lambda p: _a_mapping().save(p)), refused(Mapping.load)),
    "keys": Reader(_keys, refused(signing.public_keys)),
    "account": Reader(_account, refused(lambda path: Account(path).read())),
    "graphml": _graph(nx.write_graphml_xml, ".graphml"),
    "gml": _graph(nx.write_gml, ".gml"),
    "gexf": _graph(nx.write_gexf, ".gexf"),
    "pajek": _graph(nx.write_pajek, ".net"),
    "edges": _graph(lambda g, path: nx.write_edgelist(g, path, data=False), ".edges"),
    "adjlist": _graph(nx.write_adjlist, ".adjlist"),
    "node-link": _graph(_node_link, ".json"),
    "matrix csv": _graph(_matrix, ".csv"),
    "matrix npy": _graph(_matrix, ".npy"),
    "config.json": _of_a_run("radmm", "config.json", _report, _status, _show, _resume),
    "summary.json": _of_a_run("radmm", "summary.json", _report, _status, _transcript),
    "history.csv": _of_a_run("radmm", "history.csv", _report, _resume),
    "model.json": _of_a_run("radmm", "model.json", _predict, _export),
    "models": _of_a_run("radmm", "models.npz", _predict, _export),
    "traffic": _of_a_run("radmm", "traffic.npz", _report),
    "ledger": _of_a_run("radmm", "ledger/node-0001.jsonl", _show, _verify, _certificate, _status, _resume),
    "store": _of_a_run("radmm", "ledger/nodes-0000.replay", _resume),
    "manifest": _of_a_run("radmm", "checkpoint/latest.json", _status, _resume),
    "checkpoint": _of_a_run("radmm", "checkpoint/*/rank-00000.npz", _resume),
    "sharing's config.json": _of_a_run("sharing", "config.json", _report, _status, _resume_sharing),
    "sharing's party": _of_a_run("sharing", "models/party-2.json", _predict),
    "sharing's checkpoint": _of_a_run("sharing", "checkpoint/*/rank-00000.npz", _resume_sharing),
    "design's config.json": _of_a_run("ias", "config.json", _report, _apply),
    "design's mapping": _of_a_run("ias", "mapping.npz", _apply),
    "design's model.json": _of_a_run("ias", "model.json", _apply),
}  # fmt: skip


def _a_mapping() -> Mapping:
    return Mapping(_P, ("a", "b"), np.array([0.5, 0.5]), "job")
