"""Where random bits come from: `Simulation`, which a seed repeats, and `Secure`, which nothing repeats.

Simulation noise is addressed, not consumed: Philox in counter mode, keyed by the seed, with the counter
(block, iteration, node, purpose).  A node's noise is the same on any number of ranks, in any order of
drawing, and after a restart.  It guarantees nothing: whoever has the seed has the data.

Secure noise is keyed by the operating system.  No seed is accepted, none is kept, and the key never
derives from a rank or an iteration.  The bits are those of `os.urandom` itself, and where randomgen is
installed, after a hundred draws, AES-128 in counter mode: faster, but to load it and numpy.random costs
every rank more than a short run's draws.  Both are cryptographic; there is no third choice.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any, NoReturn, Protocol

import numpy as np

from distadmm.errors import InputError, require

Array = np.ndarray

_FEW = 100  # draws: with fewer, loading the faster generator takes longer than it saves
# Purposes keep a node's several draws of one iteration apart; numbers beyond are free for the caller.
PURPOSES = {"noise": 1, "output": 2}


class Stream(Protocol):
    """Independent variates, one after the other."""

    def standard_normal(self, size: Any = None) -> Any: ...

    def standard_gamma(self, shape: float, size: Any = None) -> Any: ...

    def words(self, count: int) -> Array:
        """Uniform 64-bit words."""
        ...

    def discrete_normal(self, sigma: float, size: int) -> Array:
        """Exact integers of N_Z(0, sigma^2)."""
        ...


class Source(Protocol):
    mode: str
    name: str

    def at(self, node: int, purpose: int, iteration: int) -> Stream:
        """The stream for one node's draw in one iteration."""
        ...


class Exact:
    """What is drawn exactly, from uniform words."""

    def discrete_normal(self, sigma: float, size: int) -> Array:
        from distadmm.privacy.noise.discrete import discrete_gaussian

        return discrete_gaussian(sigma, size, self.words)  # type: ignore[attr-defined]


def generated(bits: Any) -> Stream:
    """numpy's generator over `bits`, with its raw words."""
    return _generator()(bits)


@functools.cache
def _generator() -> Any:
    class Generated(Exact, np.random.Generator):
        def words(self, count: int) -> Array:
            return self.bit_generator.random_raw(count)  # type: ignore[attr-defined]

    return Generated


class Simulation:
    """Noise that `seed` repeats.  One stream is live at a time: `at` moves the one there is."""

    mode = "simulation"
    name = "Philox"

    def __init__(self, seed: int):
        require(
            isinstance(seed, (int, np.integer)) and seed >= 0,
            f"seed is {seed!r}; needed: a whole number, 0 or more",
        )
        self._key = np.random.SeedSequence(int(seed)).generate_state(2, np.uint64)
        self._philox = np.random.Philox(key=self._key)
        self._stream = generated(self._philox)
        self._counter = np.zeros(4, dtype=np.uint64)
        state, buffer = {"counter": self._counter, "key": self._key}, np.zeros(4, dtype=np.uint64)
        self._state: Any = {"bit_generator": "Philox", "state": state, "buffer": buffer, "buffer_pos": 4}
        self._state |= {"has_uint32": 0, "uinteger": 0}

    def at(self, node: int, purpose: int, iteration: int) -> Stream:
        counter = self._counter
        counter[1], counter[2], counter[3] = iteration, node, purpose
        self._philox.state = self._state  # copies; a tenth of the cost of a new generator
        return self._stream


class Secure:
    """Noise that nothing repeats.  `source`: "urandom", "aes", or "auto": first the one, then the other."""

    mode = "secure"

    def __init__(self, source: str = "auto"):
        require(source in ("auto", "aes", "urandom"), f"source is {source!r}; choose auto, aes or urandom")
        if source != "urandom" and not _randomgen_is_there():
            if source == "aes":
                raise InputError("AES noise needs randomgen; install it with: pip install 'distadmm[secure]'")
            source = "urandom"
        self.name = {
            "urandom": "os.urandom",
            "aes": "AES-128 counter, keyed by the system",
            "auto": f"os.urandom, after {_FEW} draws AES-128 counter, keyed by the system",
        }[source]
        self._of_urandom: float = {"urandom": math.inf, "aes": 0, "auto": _FEW}[source]  # how many draws
        self._drawn = 0
        self._process, self._stream = os.getpid(), self._make()

    def _make(self) -> Stream:
        return _Urandom() if self._drawn < self._of_urandom else _aes()

    def at(self, node: int, purpose: int, iteration: int) -> Stream:
        forked = os.getpid() != self._process  # and must not draw what its parent draws
        if forked or self._drawn == self._of_urandom:
            self._process, self._stream = os.getpid(), self._make()
        self._drawn += 1
        return self._stream

    def _refuse_copy(self, *_: object) -> NoReturn:
        raise TypeError("a secure noise source cannot be copied or saved: its copy would repeat its noise")

    __copy__ = __deepcopy__ = __getstate__ = __reduce_ex__ = _refuse_copy  # type: ignore[assignment]


def _randomgen_is_there() -> bool:
    import importlib.util

    return importlib.util.find_spec("randomgen") is not None


def _aes() -> Stream:
    from randomgen import AESCounter

    return generated(AESCounter(key=int.from_bytes(os.urandom(16), "little"), counter=0))


class _Urandom(Exact):
    """Variates from the operating system's bytes; no state to steal or to copy."""

    def words(self, count: int) -> Array:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def standard_normal(self, size: Any = None) -> Any:
        """A pair from a radius and an angle (Box and Muller 1958): scipy's inverse would be loaded by every rank."""
        shape = () if size is None else size
        count = int(np.prod(shape))
        u = (self.words(count + count % 2).astype(np.float64) + 0.5) * 2.0**-64  # radii up to 9.4
        radius, angle = np.sqrt(-2 * np.log(u[::2])), 2 * np.pi * u[1::2]
        z = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]).ravel()[:count]
        return z.reshape(shape) if size is not None else float(z[0])

    def standard_gamma(self, shape: float, size: Any = None) -> Any:
        """Gamma(shape), shape >= 1, by rejection from a cubed normal (Marsaglia and Tsang 2000)."""
        require(shape >= 1, f"gamma shape is {shape!r}; needed: 1 or more")
        d = shape - 1 / 3
        c = 1 / math.sqrt(9 * d)
        found = np.empty(1 if size is None else int(np.prod(size)))
        open_ = np.arange(len(found))
        while len(open_):
            x = self.standard_normal(len(open_))
            v = np.maximum(1 + c * x, 0.0) ** 3  # 0 is never kept
            u = ((self.words(len(open_)) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
            kept = np.log(u) < x * x / 2 + d * (1 - v + np.log(np.maximum(v, 1e-300)))
            found[open_[kept]] = d * v[kept]
            open_ = open_[~kept]
        return found.reshape(size) if size is not None else float(found[0])


def source_of(mode: str, seed: int | None = None) -> Source:
    """The source of a noise mode; never the other one than was asked for."""
    if mode == "secure":
        require(
            seed is None, "secure noise takes no seed: what a seed can repeat protects nobody; drop --seed"
        )
        return Secure()
    require(mode == "simulation", f"noise mode is {mode!r}; choose secure or simulation")
    require(seed is not None, "simulation noise needs --seed")
    return Simulation(seed)  # type: ignore[arg-type]
