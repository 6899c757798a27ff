"""Exact samples of the discrete Gaussian, many at a time.

    P(n) proportional to exp(-n^2 / (2 sigma^2)),  n an integer

|n| is proposed in blocks of b integers, block k with probability proportional to exp(-(k b)^2/(2 sigma^2)),
uniformly within the block (n = k b + j), and kept with probability exp(-j (2 k b + j)/(2 sigma^2)); then a
sign, and -0 is not kept.  Like the sampler of Canonne, Kamath and Steinke (2020) it is exact for ideal random
bits: there is no floating-point error to charge to delta.

Why floats may take part: a comparison U < p of a uniform U with a real p is decided by the leading bits of
U unless p lies in the interval that is left.  Doubles decide with a margin a hundred times their error; in
the rest of the cases (about one in 10^13) more bits of U are drawn and compared with p in integers.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from distadmm.errors import require

Array = np.ndarray
Words = Callable[[int], Array]  # that many independent uniform 64-bit words

LARGEST_SIGMA = 2.0**27  # n^2 fits a signed 64-bit integer
_BLOCKS_A_SIGMA = 8  # at least: 19 of 20 proposals are kept
_GUIDE_BITS = 12
_MARGIN = 2.0**-45  # doubles know exp(-x), x < 2, to better than 2^-51


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Integers low <= 2^bits exp(-x) <= high, at most 2 apart, for rational x >= 0."""
    halvings = max(0, math.ceil(x).bit_length() + 2)
    work = bits + 2 * halvings + 16
    r = x / 2**halvings  # below 1/2
    numerator, denominator = r.numerator, r.denominator
    # Terms of the alternating series, each rounded down; sums of an even or odd number of them bound it.
    term = total = 1 << work
    k = 0
    while term:
        k += 1
        term = term * numerator // (denominator * k)
        total += term if k % 2 == 0 else -term
    low, high = total - 2 * k - 2, total + 2 * k + 2
    for _ in range(halvings):
        low, high = low * low >> work, (high * high >> work) + 1
    shift = work - bits
    return low >> shift, (high >> shift) + 1


def _cdf_bounds(sigma: float, block: int, bits: int) -> tuple[list[int], list[int]]:
    """Integer bounds of 2^bits P(block index <= k), k = 0, 1, ..., as far as they are below 2^bits - 1."""
    work = bits + 64
    low, high = exp_bounds(Fraction(block) ** 2 / (2 * Fraction(sigma) ** 2), work)  # q; weight k is q^(k^2)
    weights = [(1 << work, 1 << work)]
    ratio = (low, high)  # q^(2k+1)
    square = (low * low >> work, (high * high >> work) + 1)
    while weights[-1][1] > 1 or ratio[1] > 1 << (work - 1):
        a, b = weights[-1]
        weights.append((a * ratio[0] >> work, (b * ratio[1] >> work) + 1))
        ratio = (ratio[0] * square[0] >> work, (ratio[1] * square[1] >> work) + 1)
    # Beyond the last weight every ratio is below 1/2: the rest is smaller than the last weight.
    total = sum(a for a, _ in weights), sum(b for _, b in weights) + weights[-1][1]
    below, lows, highs = (0, 0), [], []
    for a, b in weights:
        below = (below[0] + a, below[1] + b)
        lows.append((below[0] << bits) // total[1])
        highs.append(min((1 << bits) - 1, (below[1] << bits) // total[0]))
        if lows[-1] >= (1 << bits) - 2:
            break
    return lows, highs


@lru_cache(maxsize=16)
class _Blocks:
    """How the blocks of one sigma are drawn."""

    def __init__(self, sigma: float):
        self.sigma = sigma
        self.log_width = max(0, math.floor(math.log2(sigma / _BLOCKS_A_SIGMA)))
        self.width = 1 << self.log_width
        self.rate = 1 / (2 * sigma * sigma)
        lows, highs = _cdf_bounds(sigma, self.width, 64)
        self.low, self.high = np.array(lows, dtype=np.uint64), np.array(highs, dtype=np.uint64)
        # The leading bits of a word settle the block, except in the cells that hold a boundary.
        cells = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
        last = cells | np.uint64((1 << (64 - _GUIDE_BITS)) - 1)
        first_block = np.searchsorted(self.high, cells, side="left")
        last_block = np.searchsorted(self.high, last, side="left")
        settled = (first_block == last_block) & (np.searchsorted(self.low, last, side="right") == first_block)
        self.guide = np.where(settled, first_block, -1).astype(np.int64)

    def draw(self, words: Words, count: int) -> Array:
        """The block index of `count` proposals."""
        u = words(count)
        k = self.guide[(u >> np.uint64(64 - _GUIDE_BITS)).astype(np.int64)]
        open_ = np.flatnonzero(k < 0)
        if len(open_):
            at = u[open_]
            found = np.searchsorted(self.high, at, side="left")  # boundaries that U is surely above
            unsure = np.flatnonzero(np.searchsorted(self.low, at, side="right") != found)
            for i in unsure:
                found[i] = self.exactly(int(at[i]), words)
            k[open_] = found
        return k

    def exactly(self, u: int, words: Words) -> int:
        """The block index when 64 bits of U leave it open."""
        bits = 64
        while True:
            u = (u << 64) | int(words(1)[0])
            bits += 64
            lows, highs = _cdf_bounds(self.sigma, self.width, bits)
            above = sum(high < u for high in highs)
            if above == sum(low <= u for low in lows):
                return above


def _accepts_exactly(u: int, x: Fraction, words: Words) -> bool:
    """Whether U < exp(-x) when the 53 leading bits u of U leave it open."""
    bits = 53
    while True:
        u = (u << 64) | int(words(1)[0])
        bits += 64
        low, high = exp_bounds(x, bits)
        if u < low:
            return True
        if u > high:
            return False


def _propose(blocks: _Blocks, words: Words, count: int) -> Array:
    """About `count` samples: as many as are kept of `count` proposals."""
    k = blocks.draw(words, count)
    w = words(count)
    one = np.uint64(1)
    spare = w if blocks.log_width < 11 else words(count)  # 53 of the 64 bits of w decide on keeping
    negative = (spare & one).astype(bool)
    if not blocks.log_width:
        n = k
        kept = ~(negative & (n == 0))
    else:
        j = ((spare >> one) & np.uint64(blocks.width - 1)).astype(np.int64)
        start = k << blocks.log_width
        n = start + j
        u = (w >> np.uint64(11)).astype(np.float64) * 2.0**-53
        gap = np.exp((j * (start + n)) * -blocks.rate) - u
        kept = gap > 0
        for i in np.flatnonzero(np.abs(gap) <= _MARGIN):
            x = Fraction(int(j[i]) * (int(start[i]) + int(n[i]))) / (2 * Fraction(blocks.sigma) ** 2)
            kept[i] = _accepts_exactly(int(w[i]) >> 11, x, words)
        kept &= ~(negative & (n == 0))
    np.negative(n, out=n, where=negative)
    return n[kept]


def discrete_gaussian(sigma: float, size: int, words: Words) -> Array:
    """`size` independent integers of N_Z(0, sigma^2), exactly, from the uniform words that `words` gives."""
    require(
        math.isfinite(sigma) and 0 < sigma <= LARGEST_SIGMA,
        f"sigma is {sigma!r} grid units; needed: above 0 and at most 2^27; take a coarser grid",
    )
    blocks = _Blocks(float(sigma))
    parts: list[Array] = []
    missing = size
    while missing > 0:
        parts.append(_propose(blocks, words, missing + missing // 8 + 8)[:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
