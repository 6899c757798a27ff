"""`python -m distadmm keys`: signing keys by which nodes know each other's messages before a masked run."""

import os
from collections.abc import Sequence
from pathlib import Path

from distadmm.errors import require, told
from distadmm.files import write_json
from distadmm.flags import flag, flag_group, positional
from distadmm.privacy.noise.signing import PEERS, own_key_path, public_keys, require_cryptography
from distadmm.ranks.launch import say

_MOST = 100_000  # nodes of one --make


@flag_group("keys")
class Keys:
    folder: str = positional("FOLDER", help="where keys are, or are to be")
    make: str | None = flag(
        None, help="make a signing key for these nodes: 0-19, or 3, or 0,4,7 (a node's owner makes its own)"
    )
    join: str | None = flag(
        None, help="another owner's FOLDER/peers.json: add its public keys to this folder's"
    )


def numbers(text: str) -> list[int]:
    found: list[int] = []
    with told(f"--make is {text!r}; needed: numbers of nodes such as 0-19, or 0,4,7", ValueError):
        for part in text.split(","):
            first, _, last = part.partition("-")
            some = range(int(first), int(last or first) + 1)
            require(0 < len(some) <= _MOST, f"--make is {text!r}; needed: 1 to {_MOST} nodes, upwards")
            found += some
    return found


def made(folder: Path, nodes: Sequence[int]) -> None:
    """A signing key a node, readable by its owner alone; refused where one is known, of whichever owner."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder.mkdir(parents=True, exist_ok=True)
    known = public_keys(folder / PEERS) if (folder / PEERS).exists() else {}
    for node in nodes:
        path = own_key_path(folder / PEERS, node)
        require(
            node not in known and not path.exists(),
            f"{folder} has a key of node {node} already; a node that changes its key is another node",
        )
    for node in nodes:
        path = own_key_path(folder / PEERS, node)
        key = Ed25519PrivateKey.generate()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(key.private_bytes_raw().hex() + "\n")
        known[node] = key.public_key().public_bytes_raw()
    _write(folder, known)


def joined(folder: Path, other: Path) -> None:
    """The public keys of both; refused where they contradict each other."""
    known, more = public_keys(folder / PEERS), public_keys(other)
    for node, key in more.items():
        require(
            known.get(node, key) == key,
            f"{folder / PEERS} and {other} have different keys of node {node}; find out which is its own",
        )
    _write(folder, {**known, **more})


def _write(folder: Path, known: dict[int, bytes]) -> None:
    write_json(folder / PEERS, {str(node): known[node].hex() for node in sorted(known)})


def done(asked: Keys) -> str:
    require_cryptography()
    folder = Path(asked.folder)
    if asked.make is not None:
        made(folder, numbers(asked.make))
    if asked.join is not None:
        joined(folder, Path(asked.join))
    lines = [f"{node:>6}  {key.hex()}" for node, key in public_keys(folder / PEERS).items()]
    return "\n".join(["  node  public signing key", *lines])


main = say("distadmm keys", __doc__, Keys, done)
