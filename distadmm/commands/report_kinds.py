"""What a report shows of each kind of run: its columns, its curves, and what must be known to read them."""

from typing import NamedTuple


class Column(NamedTuple):
    head: str
    name: str  # of the quantity, in history.csv or summary.json
    show: str = "{:#.4g}"
    unit: float = 1.0


class Curve(NamedTuple):
    """One figure: two columns of the history against each other."""

    x_label: str
    x: str
    y_label: str
    y: str
    x_unit: float = 1.0
    y_unit: float = 1.0
    logarithmic: bool = False
    worst: str = ""  # the same of the worst node


class Kind(NamedTuple):
    history: tuple[str, ...]  # columns of history.csv that are read
    columns: tuple[Column, ...]
    curves: tuple[Curve, ...]
    reading: tuple[tuple[str, str], ...]  # how the heads that begin so are to be read
    spent: Column = Column("", "")  # what is drawn over epsilon
    whose: str = ""  # of whom an epsilon is
    objective: frozenset[str] = frozenset()  # flags that change the function that is minimised
    gaps: bool = False  # whether the iteration and the bytes at which a gap is reached are columns
    point: tuple[str, ...] = ()  # what sets apart the points that one run holds


_ROWS = frozenset((
    *("data", "target", "loss", "intercept", "labels", "schema", "features", "test_fraction", "test_data"),
    *("sanitise", "data_id", "clip", "rho", "weight", "rows_per_node"),
))  # fmt: skip
_ERROR = Column("test error %", "test_error", "{:.2f}", 100)
_WRONG = Curve("iteration", "iteration", "test error, %", "test_error", 1, 100)
SEEDS = "Brackets: the range over seeds; bands likewise."

KINDS = {
    "radmm": Kind(
        (
            *("iteration", "mean_model_gap", "test_error", "worst_test_error", "test_loss", "worst_test_loss"),
            *("bytes", "seconds", "dual_residual", "epsilon"),
        ),
        (
            Column("gap of mean", "mean_model_gap", "{:.2e}"),
            _ERROR,
            Column("worst error %", "worst_test_error", "{:.2f}", 100),
            Column("test loss", "test_loss"),
            Column("worst loss", "worst_test_loss"),
            Column("own rows %", "own_rows_error", "{:.2f}", 100),
            Column("own rows loss", "own_rows_loss"),
        ),
        (
            Curve("iteration", "iteration", "gap of the mean model", "mean_model_gap", logarithmic=True),
            Curve("MB sent by all nodes", "bytes", "gap of the mean model", "mean_model_gap", 1e-6, logarithmic=True),
            Curve("iteration", "iteration", "test loss of the nodes' own models", "test_loss", worst="worst_test_loss"),
            _WRONG._replace(worst="worst_test_error"),
        ),
        (
            ("gap of mean", "gap of mean: objective of the nodes' mean model over the optimum of all rows, minus 1."),
            ("to gap", "to gap G: the first iteration at which it is G or less, and the MB sent by then."),
            ("test", "test error and loss: of the nodes' own models, mean over the nodes, and the worst node."),
            ("own rows", "own rows: those trained on, by a private evaluation, under noise."),
            ("epsilon", "epsilon: of the node that has spent most."),
            ("MB", "MB: all that the protocol sends, of all nodes."),
        ),
        Column("test loss of the nodes' own models", "test_loss"),
        "node that has spent most",
        _ROWS,
        gaps=True,
    ),
    "sharing": Kind(
        ("iteration", "residual", "objective", "test_loss", "accuracy", "bytes", "seconds"),
        (
            Column("objective/N", "objective", "{:.6g}"),
            Column("test loss", "test_loss"),
            _ERROR,
            Column("party 1 alone %", "alone", "{:.2f}", 100),
            Column("all in one place %", "pooled", "{:.2f}", 100),
        ),
        (
            Curve("iteration", "iteration", "objective/N", "objective"),
            Curve("iteration", "iteration", "residual", "residual", logarithmic=True),
            _WRONG,
        ),
        (
            ("objective/N", "objective/N: loss and regulariser of the parties' models together, a record."),
            ("party 1 alone", "alone: the test error of party 1's columns."),
            ("all in one place", "in one place: that of all columns, without a protocol."),
            ("epsilon", "epsilon: of a person whom all messages are about (s1: of the party that spent most)."),
        ),
        Column("test error, %", "test_error", unit=100),
        "person whom all parties' messages are about (s1: party that spent most)",
        (_ROWS - {"rho", "clip"}) | {"lambda", "mean", "reg", "region", "key", "party_files"},
    ),
    "istdp": Kind(
        ("iteration", "objective", "nonzeros", "length", "seconds"),
        (
            Column("objective", "objective", "{:.6g}"),
            Column("nonzeros", "nonzeros", "{:.4g}"),
            _ERROR,
            Column("test mean squared error", "test_mean_squared_error"),
            Column("excess error", "excess_error"),
            Column("support F1", "support_f1", "{:.3f}"),
        ),
        (
            Curve("iteration", "iteration", "objective", "objective"),
            Curve("iteration", "iteration", "columns with a coefficient", "nonzeros"),
        ),
        (("objective", "objective: mean loss and penalty."), ("", "Of --repetitions: their means.")),
        Column("test error, %", "test_error", unit=100),
        "run as a whole",
        (_ROWS - {"rho", "clip"}) | {"penalty", "lambda", "alpha", "row_norm"},
    ),
    "ias": Kind(
        ("beta", "F", "I_SU", "E_d", "gap"),
        (
            Column("I(S;U)", "I_SU", "{:z.6f}"),
            Column("E[d]", "E_d", "{:z.6f}"),
            Column("F", "F", "{:z.8f}"),
            Column("proved gap", "gap", "{:.1e}"),
        ),
        (Curve("leakage E[d]", "E_d", "I(S;U), nats", "I_SU"),),
        (
            ("I(S;U)", "I(S;U): what the server still learns."),
            ("E[d]", "E[d]: what it learns of the data, by the measure; an average over the data, no epsilon."),
        ),
        point=("beta",),
    ),
    "funnel": Kind(
        ("R", "I_SY", "I_XY", "lower_bound"),
        (
            Column("I(S;Y)", "I_SY", "{:z.8f}"),
            Column("I(X;Y)", "I_XY", "{:z.8f}"),
            Column("proven lower", "lower_bound", "{:z.8f}"),
        ),
        (Curve("I(X;Y), nats", "I_XY", "I(S;Y), nats", "I_SY"),),
        (
            ("I(S;Y)", "I(S;Y): what the released Y tells of the private S."),
            ("I(X;Y)", "I(X;Y): what it tells of the useful X. Both are nats, averages over the data: no epsilon."),
        ),
        point=("R", "reading"),
    ),
}  # fmt: skip
