"""Hooks of mkdocs: README and others as pages, links that leave this folder, and the reference from docstrings.

mkdocs build --strict        (pip install -e '.[docs]'; the site lands in build/site)
"""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

HOME = Path(__file__).parent.parent
ALSO = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "benchmarks/README.md": "benchmarks.md"}
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")
NAME = re.compile(r"^::: (\S+)$", re.M)


def on_files(files: Any, config: Any) -> Any:
    """Pages from outside, and whatever else outside a page links to, as it is."""
    from mkdocs.structure.files import File

    docs = Path(config.docs_dir)
    pages = {docs / file.src_uri: file.src_uri for file in files.documentation_pages()}
    for source, name in ALSO.items():
        content = moved((HOME / source).read_text(), HOME / source, docs / name)
        files.append(File.generated(config, name, content=content))
        pages[HOME / source] = name
    for page in pages:
        for _, link in LINK.findall(page.read_text()):
            target = (page.parent / link).resolve()
            if docs not in target.parents and str(target.relative_to(HOME)) not in ALSO and target.is_file():
                files.append(File.generated(config, _copied(target), abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    docs = Path(config.docs_dir)
    if page.file.src_uri not in ALSO.values():
        place = docs / page.file.src_uri
        markdown = moved(markdown, place, place)
    return NAME.sub(lambda found: described(found[1]), markdown)


def moved(text: str, source: Path, place: Path) -> str:
    """`text` of the file `source` with links that hold at `place`."""
    docs = HOME / "docs"

    def link(found: re.Match[str]) -> str:
        target = (source.parent / found[2]).resolve()
        inside = docs in target.parents
        name = str(target.relative_to(docs if inside else HOME))
        uri = name if inside else ALSO.get(name, _copied(target))
        up = "../" * len(place.relative_to(docs).parent.parts)
        return found[1] + up + uri

    return LINK.sub(link, text)


def _copied(target: Path) -> str:
    return "files/" + str(target.relative_to(HOME)).replace("/.", "/")


def described(name: str) -> str:
    """A name of the interface: how it is called, what its docstring says, and the same of a class's own members."""
    where, _, what = name.partition(":")
    module = importlib.import_module(where)
    found = getattr(module, what) if what else module
    doc = inspect.getdoc(found)
    assert doc, f"{name} has no docstring"
    lines = [f"### `{name.replace(':', '.')}`", ""]
    if callable(found):
        lines += ["```", f"{what}{_signature(found)}", "```", ""]
    lines += [_markdown(doc), ""]
    for owner in reversed(_own(found)):
        for member, value in vars(owner).items():
            target = getattr(value, "__func__", getattr(value, "fget", value))
            if not member.startswith("_") and inspect.isfunction(target) and target.__doc__:
                shown = member if isinstance(value, property) else member + _signature(target)
                lines += [f"- `{shown}`: {inspect.cleandoc(target.__doc__).splitlines()[0]}"]
    return "\n".join([*lines, ""])


def _own(found: Any) -> list[type]:
    """A class and those of this package that it inherits from."""
    bases = found.__mro__ if inspect.isclass(found) else ()
    return [base for base in bases if base.__module__.startswith("distadmm")]


def _markdown(doc: str) -> str:
    """A docstring as a page shows it: columns kept, headings and lists of scikit-learn's style made such."""
    doc = re.sub(r"^(?=[^\s-].*\S {3,}\S)", "    ", doc, flags=re.M)
    doc = re.sub(r"^(\w+)\n-{3,}\n", r"**\1**\n\n", doc, flags=re.M)
    return re.sub(r"^(\w+(?:, \w+)*) : ", r"- `\1`: ", doc, flags=re.M)


def _signature(found: Any) -> str:
    try:
        text = str(inspect.signature(found))
    except (TypeError, ValueError):
        return "(...)"
    text = re.sub(r"<[^<>]* object at 0x\w+>|Ellipsis", "...", text)
    text = re.sub(r"(: |-> )([\"'])(.*?)\2(?=[,) ]|$)", r"\1\3", text)  # annotations, not defaults
    return re.sub(r"^\((self|cls)(: \w+)?(, )?", "(", re.sub(r"distadmm(\.\w+)*\.", "", text))
