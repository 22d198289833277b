"""The documentation as a site: the pages of the repository as they are. Its readers fetch nothing from elsewhere.

make docs    # then open build/docs/site/index.html
"""

from __future__ import annotations

import hashlib
import html
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parent.parent.parent

project = "quorumlog"
author = "the authors of quorumlog"
html_title = "quorumlog"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
# No footer names who made the tools, and nothing comes from elsewhere.
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}

extensions = ["myst_parser"]
root_doc = "docs/README"
html_extra_path = ["index.html"]
include_patterns = ["*.md", "docs/**"]
#: Where pages were before they were sorted by reader: each names its new place. The site sends readers on.
MOVED = [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "README.md"]
exclude_patterns = [str(page.relative_to(ROOT)) for page in MOVED]
# Links lead to headings by the anchors that code hosting gives them, which tests/test_documents.py checks.
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
# A notebook's output, and blocks that show several shells at once, have no language.
highlight_language = "none"

#: What draws the diagrams, where make docs could have it; without it, their source is shown.
MERMAID = ROOT / "build/docs/package/dist/mermaid.min.js"
MERMAID_SHA256 = "74d7c46dabca328c2294733910a8aa1ed0c37451776e8d5295da38a2b758fb9b"
DRAW = """
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
mermaid.initialize({startOnLoad: true, theme: dark ? "dark" : "neutral"});
"""

#: Pages that list others, with the links that are in the list.
INDEXES = {"docs/README", "docs/decisions/README"}


class Diagram(SphinxDirective):
    """A block of Mermaid's: its source, which the reader's browser draws."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        source = html.escape("\n".join(self.content))
        return [nodes.raw("", f'<pre class="mermaid">{source}</pre>', format="html")]


def add_contents(app: Sphinx, page: str, text: list[str]) -> None:
    """Makes the side bar of what an index lists, section by section: the index itself stays as a reader of the
    repository sees it."""
    if page not in INDEXES:
        return
    folder = Path(page).parent
    contents = ""
    for section in re.split(r"^## ", text[0], flags=re.M):
        caption = section.splitlines()[0]
        # The part before the sections is read from left to right; in a section, an item starts with its page.
        item = r"^(?:- |\d+\. )" if not caption.startswith("#") else ""
        linked = re.findall(item + r"\[[^]]*\]\(([\w/.-]+\.md)\)", section, re.M)
        listed = [f"/{(ROOT / folder / link).resolve().relative_to(ROOT).with_suffix('')}" for link in linked]
        if listed:
            shown = f":caption: {caption}\n" if not caption.startswith("#") else ""
            contents += "\n```{toctree}\n:hidden:\n" + shown + "\n" + "\n".join(listed) + "\n```\n"
    text[0] += contents


def draw_diagrams(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Hands a page with diagrams what draws them."""
    if (
        MERMAID.exists()
        and tree is not None
        and any('class="mermaid"' in str(each) for each in tree.findall(nodes.raw))
    ):
        app.add_js_file("mermaid.min.js")
        app.add_js_file(None, body=DRAW)


def send_readers_on(app: Sphinx, problem: Exception | None) -> None:
    """Writes a page at each old address that leads to the same heading of the new one."""
    for page in MOVED:
        (place,) = re.findall(r"\(([\w/-]+)\.md\)", page.read_text())
        (Path(app.outdir) / "docs" / f"{page.stem}.html").write_text(
            f'<!doctype html><meta charset="utf-8"><title>Moved</title><a href="{place}.html">{place}</a>'
            f'<script>location.replace("{place}.html" + location.hash)</script>\n'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("mermaid", Diagram)
    app.connect("source-read", add_contents)
    app.connect("html-page-context", draw_diagrams)
    app.connect("build-finished", send_readers_on)
    if MERMAID.exists():
        if hashlib.sha256(MERMAID.read_bytes()).hexdigest() != MERMAID_SHA256:
            raise ValueError(f"{MERMAID} is not what conf.py was written for")
        app.config.html_static_path = [str(MERMAID)]  # type: ignore[attr-defined]
    return {"parallel_read_safe": True}
