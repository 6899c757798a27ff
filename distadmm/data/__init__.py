"""Tables with their origin, and what gives each node its rows."""

from distadmm.data.identity import data_id, local_key
from distadmm.data.source import Source, WholeSource, open_source
from distadmm.data.table import ClipReport, Sparse, Table, clip_rows, shard

__all__ = [
    "ClipReport", "Source", "Sparse", "Table", "WholeSource", "clip_rows", "data_id", "load_adult",
    "local_key", "open_source", "shard",
]  # fmt: skip


def load_adult() -> tuple[Table, Table]:
    """Adult in 105 columns: 40,000 training and 5,222 test rows."""
    from distadmm.data.adult import load_adult as load

    return load()
