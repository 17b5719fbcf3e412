"""Make the pages and links of the documentation's site that are not files in docs/: a hook of MkDocs, see mkdocs.yml.

The navigation is the list of docs/index.md and that of docs/results/index.md, so that a page is listed in one place.  Each
command has a page with its help and what its example prints, and each face of a package (an `__init__` with `__all__`) one with the
reference of its names.  Files outside docs/ that a page links to are published as they are, Markdown as a page.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
OUTPUTS = DOCS / "reference" / "outputs"
os.environ |= {"NO_COLOR": "1", "COLUMNS": "80", "TERM": "dumb"}
PACKAGES = ("src", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "packages").glob("suffice-*/src")))
LINK = re.compile(r"```.*?```|`[^`\n]*`|(\[[^\]]*\])\(([^)#\s]+)(#[^)\s]*)?\)", re.DOTALL)
"""Code, which stays as it is, or a Markdown link: its text in brackets, the place and the anchor."""
LISTED = re.compile(r"^\*\*(?P<heading>[\w ]+)\*\*|\[[^\]]+\]\((?P<target>[^)#\s]+\.md)\)", re.MULTILINE)
"""A bold heading, or a link to a page."""


def on_config(config: Any) -> Any:
    """Set the navigation."""
    sys.path.insert(0, str(ROOT))  # MkDocs takes this file by its path, and forgets what it added to that of modules
    groups: dict[str, list[Any]] = {"Start": ["index.md"]}
    for name, pages in _sections(DOCS / "index.md").items():
        groups[name] = [
            {"Frameworks": [page, *_beside(page)]} if page.endswith("/index.md") else page
            for page in pages
            if not page.startswith("..") and page != "results/index.md"
        ]
    text = (DOCS / "results" / "index.md").read_text("utf-8")
    results = [posixpath.normpath(f"results/{part['target']}") for part in LISTED.finditer(text) if part["target"]]
    groups["Results"] = [
        "results/index.md",
        *(path for path in dict.fromkeys(results) if path.startswith("results/")),
    ]
    groups["Commands"] = [_command_page(words) for words in _commands()]
    groups["API"] = [f"api/{module}.md" for module in faces()]
    groups["Project"] = [_published(path) for path in sorted(linked_outside()) if path.endswith(".md")]
    config.nav = [{name: pages} for name, pages in groups.items()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of commands and faces, and the files outside docs/ that pages link to."""
    for words in _commands():
        files.append(File.generated(config, _command_page(words), content=command_text(words)))
    for module, names in faces().items():
        files.append(File.generated(config, f"api/{module}.md", content=face_text(module, names)))
    for path in sorted(linked_outside()):
        files.append(File.generated(config, _published(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to files outside docs/ into links to what is published of them."""
    place = page.file.src_uri
    at = place.removeprefix("files/") if place.startswith("files/") else f"docs/{place}"

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found.groups()
        if not target or "://" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(at), target))
        if not path.startswith("docs/") and path not in published:
            return str(text[1:-1])  # a folder
        new = path.removeprefix("docs/") if path.startswith("docs/") else _published(path)
        return f"{text}({posixpath.relpath(new, posixpath.dirname(place) or '.')}{anchor or ''})"

    published = linked_outside()
    return LINK.sub(link, markdown) if not place.startswith("api/") else markdown


@cache
def linked_outside() -> frozenset[str]:
    """Return the files outside docs/ that pages of docs/ link to, and those that these link to, relative to the root."""
    found: set[str] = set()
    waiting = sorted(DOCS.rglob("*.md"))
    while waiting:
        page = waiting.pop()
        for _, target, _ in LINK.findall(page.read_text("utf-8")):
            path = (page.parent / target).resolve()
            if (
                not target
                or "://" in target
                or path.is_relative_to(DOCS)
                or not path.is_relative_to(ROOT)
                or not path.is_file()
            ):
                continue
            name = path.relative_to(ROOT).as_posix()
            if name not in found:
                found.add(name)
                waiting += [path] if path.suffix == ".md" else []
    return frozenset(found)


def faces() -> dict[str, tuple[str, ...]]:
    """Return the public names of each face, by module; a name that an earlier and shorter face has is left out."""
    modules: dict[str, Path] = {}
    for root in PACKAGES:
        for path in sorted((ROOT / root).rglob("__init__.py")):
            modules[".".join(path.parent.relative_to(ROOT / root).parts)] = path
    seen: set[str] = set()
    found: dict[str, tuple[str, ...]] = {}
    for module in sorted(modules, key=lambda name: (name.count("."), name)):
        own = [name for name in _public(modules[module]) if name not in seen and not name.startswith("__")]
        if own:
            seen.update(own)
            found[module] = tuple(own)
    return found


def _public(path: Path) -> list[str]:
    """Return the names of `__all__`, or where that is made from the imports for type checkers, those of `name as name`."""
    body = ast.parse(path.read_text("utf-8")).body
    for node in body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    imports = [node for block in body if isinstance(block, ast.If) for node in block.body]
    aliases = [alias for node in (*body, *imports) if isinstance(node, ast.ImportFrom) for alias in node.names]
    return [alias.name for alias in aliases if alias.asname == alias.name]


def face_text(module: str, names: tuple[str, ...]) -> str:
    """Return the page of a face: the reference of its names, from their docstrings."""
    return f"# {module}\n\n" + "".join(f"::: {module}.{name}\n\n" for name in names)


def command_text(words: str) -> str:
    """Return the page of a command: its help, and what its example prints where that is stored."""
    from tests.support.cli_tools import cli

    parts = [f"# suffice {words}"]
    stored = OUTPUTS / f"{words.replace(' ', '-')}.txt"
    if stored.is_file():
        parts.append(f"```console\n{stored.read_text('utf-8')}```")
    return "\n\n".join([*parts, f"## Help\n\n```text\n{cli(*words.split(), '--help').out.strip()}\n```"]) + "\n"


class Doctests(griffe.Extension):
    """Show the examples of docstrings as code: Markdown takes their prompts for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence each example of an object's docstring."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""Return a docstring with each example, from its first prompt to the next empty line, as a block of code.

    >>> print(fenced("Add.\n\n>>> add(1, 2)\n3"))
    Add.
    <BLANKLINE>
    ```pycon
    >>> add(1, 2)
    3
    ```
    """
    blocks = [
        f"```pycon\n{block}\n```" if block.lstrip().startswith(">>> ") and block[0] != " " else block
        for block in text.split("\n\n")
    ]
    return "\n\n".join(blocks)


@cache
def _commands() -> tuple[str, ...]:
    """Return the commands of all installed packages; groups are not among them, since those below them have pages."""
    from suffice.cli.tree import commands

    names = [words for words, _ in commands()]
    return tuple(
        words for words in names if not any(other.startswith(f"{words} ") for other in names) or words == "demo"
    )


def _command_page(words: str) -> str:
    return f"commands/{words.replace(' ', '-')}.md"


def _published(path: str) -> str:
    return f"files/{path}"


def _beside(page: str) -> list[str]:
    """Return the other pages of the folder of an index."""
    folder = (DOCS / page).parent
    return [path.relative_to(DOCS).as_posix() for path in sorted(folder.glob("*.md")) if path.name != "index.md"]


def _sections(page: Path) -> dict[str, list[str]]:
    """Return the pages that a page lists under each bold heading or sentence, in their order."""
    found: dict[str, list[str]] = {}
    name = ""
    for part in LISTED.finditer(page.read_text("utf-8")):
        name = part["heading"] or name
        if name and part["target"]:
            found.setdefault(name, []).append(part["target"])
    return found
