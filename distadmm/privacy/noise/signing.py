"""Pinned keys: each node signs what it starts a session with, and everybody else checks it (Ed25519).

FILE names the public signing key of every node; a node's own private key lies beside it, in `node-NNNN.key`.
"""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from distadmm.errors import require, told
from distadmm.files import read_json
from distadmm.privacy.noise.masks import NAME

PEERS = "peers.json"


def require_cryptography() -> None:
    require(
        importlib.util.find_spec("cryptography") is not None,
        "signing keys need the package cryptography; install it with: pip install 'distadmm[secure]'",
    )


def own_key_path(peers: Path, node: int) -> Path:
    return peers.parent / f"node-{node:04d}.key"


def public_keys(path: Path) -> dict[int, bytes]:
    """Every node's public signing key, as FILE has them."""
    require(path.is_file(), f"no file {path}; make one: python -m distadmm keys FOLDER --make FIRST-LAST")
    wrong = f"{path} is no file of signing keys; needed: JSON of node: 64 hexadecimal digits"
    with told(wrong, ValueError, AttributeError, TypeError):
        found = {int(node): bytes.fromhex(key) for node, key in read_json(path).items()}
    require(all(len(key) == 32 for key in found.values()), wrong)
    return dict(sorted(found.items()))


def require_all(path: Path, publics: Mapping[int, bytes], nodes: int) -> None:
    missing = sorted(set(range(nodes)) - publics.keys())
    require(
        not missing,
        f"{path} has no key of node {missing[:1]}; join its owner's: python -m distadmm keys --join",
    )


def signature(path: Path, node: int, public: bytes, session: bytes, h_0: bytes) -> bytes:
    """What this node starts with, signed by its own key, which must be the one that FILE names."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    own = own_key_path(path, node)
    require(
        own.is_file(),
        f"no private key {own} of node {node}, which this rank hosts; --peer-keys looks beside its file",
    )
    with told(f"{own} is no signing key; needed: 64 hexadecimal digits", ValueError):
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(own.read_text().strip()))
    its_own = key.public_key().public_bytes_raw() == public
    require(its_own, f"{own} does not belong to the key of node {node} in {path}")
    return key.sign(started(session, h_0))


def started(session: bytes, h_0: bytes) -> bytes:
    return NAME + b" start" + session + h_0


def checks(public: bytes, signed: bytes, session: bytes, h_0: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signed, started(session, h_0))
    except InvalidSignature:
        return False
    return True
