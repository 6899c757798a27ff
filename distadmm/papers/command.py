"""Figures of the papers, made again: python -m distadmm reproduce {radmm,sharing,ias,funnel,istdp} ..."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from distadmm.errors import DONE, USAGE

PAPERS = {
    "radmm": "X. Zhang, M. M. Khalili, M. Liu: Recycled ADMM",
    "sharing": "Y. Hu, P. Liu, L. Kong, D. Niu: Learning Privately over Distributed Features",
    "ias": "Y. Jin, L. Lai: Optimal Accuracy-Privacy Trade-off of Inference as Service",
    "funnel": "L. Chen et al.: An Expectation-Maximization Relaxed Method for Privacy Funnel",
    "istdp": "W. Yuan, D. Peng: Iterative shrinkage-thresholding with differential privacy",
}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in PAPERS:
        return importlib.import_module(f"distadmm.papers.{words[0]}").main(words[1:])
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        print("\n".join(f"  {name:<8} {title}" for name, title in PAPERS.items()))
        return DONE if words else USAGE
    print(f"distadmm reproduce: no paper {words[0]!r}; known: {', '.join(PAPERS)}", file=sys.stderr)
    return USAGE
