"""The page of `report`: tables and figures in one HTML file that needs no network and no script.

It is read in light, in dark and on paper, in black and white, on a telephone, and by those who hear it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import compress
from typing import TYPE_CHECKING

from distadmm.commands.report_figures import Picture, pictures
from distadmm.commands.report_kinds import KINDS, SEEDS
from distadmm.commands.report_runs import Group, common, shared
from distadmm.graphs import figures as plotting

if TYPE_CHECKING:
    from distadmm.commands.report import Told

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --rule: #bbb; --mark: #a34700 }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: var(--ink);
       background: var(--paper); overflow-wrap: break-word }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2rem }
div.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 0.85rem; margin: 1rem 0 }
caption { text-align: left; font-weight: 600; padding: 0.25rem 0 }
th, td { padding: 0.25rem 0.5rem; text-align: right; border-bottom: 1px solid var(--rule); vertical-align: top }
td, span.number { white-space: nowrap } td.text { white-space: normal }
th { font-weight: 600 } thead th { vertical-align: bottom }
th:first-child, table.words td, table.words th { text-align: left; white-space: normal; min-width: 9rem }
table.words td { overflow-wrap: anywhere }
div.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); gap: 1rem 2rem }
figure { margin: 0 }
figure svg { width: 100%; max-width: 38rem; height: auto; display: block }
figcaption { font-size: 0.85rem; max-width: 38rem }
p.note { border-left: 4px solid var(--mark); padding-left: 0.75rem }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #15181b; --rule: #4a4f55; --mark: #ffae66 }
  figure svg { filter: invert(1) hue-rotate(180deg) }
}
@media screen and (max-width: 48rem) {
  div.wide { overflow: visible }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
  table, tbody, caption { display: block }
  tr { display: block; border: 1px solid var(--rule); margin-bottom: 0.75rem; padding: 0.25rem }
  tbody th, td, table.words td { display: flex; min-width: 0; overflow-wrap: anywhere;
       justify-content: space-between; gap: 1rem; border: 0; text-align: right;
       white-space: normal }
  table.pairs tr { display: flex; justify-content: space-between; gap: 1rem; border-width: 0 0 1px; margin: 0 }
  tbody th::before, td::before { content: attr(data-head); text-align: left; font-weight: 400; flex: none;
       max-width: 50% }
  table.pairs th::before, table.pairs td::before { content: none }
}
@media print {
  @page { size: A4 landscape; margin: 12mm }
  :root { color-scheme: light; --ink: #000; --paper: #fff; --rule: #777; --mark: #000 }
  body { margin: 0; max-width: none; padding: 0; font-size: 9pt }
  div.wide { overflow: visible }
  table { font-size: 7pt } th, td { padding: 1pt 3pt; white-space: normal }
  th:first-child { min-width: 22mm }
  div.figures { grid-template-columns: 1fr 1fr 1fr; gap: 3mm 6mm } figcaption { font-size: 7pt }
  figure, tr, p.note { break-inside: avoid } thead { display: table-header-group }
  h2, caption { break-after: avoid }
}
"""


TEXT = ' class="text"'  # a cell that may be broken
_NUMBERS = re.compile(r"[-+0-9.,e]+( \[[-+0-9.,e ]+\])?( \([0-9]+ of [0-9]+\))?")
_POWER = re.compile(r"[0-9.]+e-[0-9]+")  # which a browser would break at its minus
_HASH = re.compile(r"^([0-9a-f]{12})[0-9a-f]{20,}")  # so much of it tells tables apart


def page(mark: str, told: Sequence[Told]) -> str:
    groups = [group for one in told for group in one.runs]
    runs = sum(len(group.traces) for group in groups)
    several = f"{runs} run{'s' * (runs > 1)}" + f", {len(groups)} settings" * (runs > len(groups) > 1)
    title = escape(groups[0].label + f": {several}" * (runs > 1) if len(groups) == 1 else several)
    parts = [
        f'<!doctype html>\n{mark}\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title} (distadmm)</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        f"<header><h1>{title}</h1></header>\n<main>",
    ]
    at = 0
    for one in told:
        same = list(dict([*one.same, *common(one.runs)]).items())
        alike = "the same in every row" if len(one.rows) > 1 else "settings"
        drawn = figures(one.runs, at)
        at += len(drawn)
        named = [*one.header, *(head for head, _ in one.same)]
        reading = [text for begin, text in KINDS[one.kind].reading if any(h.startswith(begin) for h in named)]
        reading += [SEEDS] * any(" [" in cell for row in one.rows for cell in row)
        parts += [
            f'<section aria-labelledby="{one.kind}">\n<h2 id="{one.kind}">Runs of {one.kind}</h2>',
            *(f'<p class="note">{prose(note)}</p>' for note in one.notes),
            table(one.header, one.rows, f"{one.kind}: what each setting reached"),
            f"<p>{escape(' '.join(reading))}</p>",
            *(['<div class="figures">', *drawn, "</div>"] if drawn else []),
            *([table(["setting", "value"], same, f"{one.kind}: {alike}", "words")] if same else []),
            "</section>",
        ]
    sources = [
        [group.label, str(trace.folder), str(trace.config.get("seed")), _HASH.sub(r"\1", trace.data_id)]
        for group in groups
        for trace in group.traces
    ]
    heads, lines, same = shared(["setting", "directory", "seed", "data"], sources)
    known = [any(cells) for cells in zip(*lines)]  # made-up problems have no data
    heads, *lines = (list(compress(line, known)) for line in (heads, *lines))
    said = "; ".join(f"{head} {value}" for head, value in same if value)
    parts += [
        '<section aria-labelledby="sources">\n<h2 id="sources">Where it comes from</h2>',
        table(heads, lines, "directories of the runs", "words"),
        *([f"<p>In every row: {escape(said)}.</p>"] if said else []),
        "</section>",
    ]
    return "\n".join(parts) + "\n</main>\n</body>\n</html>\n"


def prose(text: str) -> str:
    """Escaped, with no line's end within a number."""
    return _POWER.sub(r'<span class="number">\g<0></span>', escape(text))


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", kind: str = "numbers"
) -> str:
    """Roles are said, for a narrow screen shows rows as cards, which would take a table's meaning from it."""
    named = escape(caption or ", ".join(header))
    heads = "".join(f'<th role="columnheader" scope="col">{escape(head)}</th>' for head in header)
    kind += " pairs" * (kind == "words" and len(header) == 2)
    lines = [
        f'<div class="wide" tabindex="0" role="region" aria-label="{named}">',
        f'<table role="table" class="{kind}">' + f"<caption>{named}</caption>" * bool(caption),
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead><tbody role="rowgroup">',
    ]
    for row in rows:
        # A number breaks nowhere but before its range.
        shown = [escape(cell).replace(" [", " <wbr>[") for cell in row]
        told = [f' data-head="{escape(head)}">{cell}' for head, cell in zip(header, shown)]
        cells = "".join(
            f'<td role="cell"{"" if _NUMBERS.fullmatch(cell) else TEXT}{more}</td>'
            for cell, more in zip(row[1:], told[1:])
        )
        lines.append(f'<tr role="row"><th role="rowheader" scope="row"{told[0]}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])


def figures(found: Sequence[Group], at: int = 0) -> list[str]:
    """Everything that is drawn, as elements of the page; a line that says why where matplotlib is missing."""
    if not plotting.possible():
        return [f"<p>no curves: {plotting.MISSING}</p>"]
    return [_figure(picture, f"figure{number}") for number, picture in enumerate(pictures(found), at + 1)]


def _figure(picture: Picture, name: str) -> str:
    """The names within an SVG are of the page; each figure has its own."""
    figure, axis = plotting.pyplot().subplots(figsize=(6.0, 3.8))
    picture.draw(axis)
    if picture.legend:
        labels = axis.get_legend_handles_labels()[1]
        ncols = 1 if any(len(label) > 30 for label in labels) else 2  # two of 30 fit below the axes
        axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.18), fontsize=8, ncols=ncols)
    for patch in (figure.patch, axis.patch):
        patch.set_alpha(0.0)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", plotting.inline(figure, picture.title))
    begin, end = svg.split(">", 1)
    title = f'<title id="{name}-title">{escape(picture.title)}</title>'
    told = f'{title}<desc id="{name}-desc">{escape(picture.text)}</desc>'
    begin += f' role="img" aria-labelledby="{name}-title" aria-describedby="{name}-desc"'
    caption = f"<figcaption>{escape(picture.title)}. {prose(picture.text)}</figcaption>"
    return f"<figure>{begin}>{told}{end}{caption}</figure>"
