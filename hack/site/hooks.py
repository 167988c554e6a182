"""What MkDocs does not do by itself: the version of the site, and links that leave docs/."""

import os
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority

VERSION = os.environ.get("SITE_VERSION", "dev")
# GitHub names the repository that builds: a fork's site leads to the fork.
OWNER, _, NAME = os.environ.get("GITHUB_REPOSITORY", "rollcall-dev/rollcall").partition("/")
REPOSITORY = f"https://github.com/{OWNER}/{NAME}"
FILES = f"{REPOSITORY}/blob/{'main' if VERSION == 'dev' else VERSION}"
LINK = re.compile(r"(?<=\]\()(?:\.\./)+[^)\s]+")
ITEM = re.compile(r"(\n\n(?: {2}[^\n]+\n)+)(?=\d+\. )")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEAD = re.compile(r"<th(?:\s[^>]*)?>(.*?)</th>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
CODE = re.compile(r"(?<!<span></span>)<code>([^<]*)</code>")
# An identifier stays in one piece, unless it is longer than its line. On a phone each row is a block, in which each cell has the name
# of its column, and a picture is as large as it takes to read it.
STYLE = """<style>
.md-typeset td code { white-space: nowrap; }
.md-typeset .word { display: inline-block; white-space: nowrap; }
@media (max-width: 44.9em) {
  .md-typeset td code { white-space: normal; }
  .md-typeset .word { max-width: calc(100% - 1em); overflow-wrap: anywhere; word-break: normal; white-space: normal; }
  .md-typeset picture { display: block; overflow-x: auto; }
  .md-typeset picture img { width: 860px; max-width: none; }
  .md-typeset__table, .md-typeset table:not([class]) { display: block; }
  .md-typeset table:not([class]) thead { display: none; }
  .md-typeset table:not([class]) :is(tbody, tr, td) { display: block; }
  .md-typeset table:not([class]) td { border-top: 0; min-width: 0; padding: .2em 1em; }
  .md-typeset table:not([class]) tr { border-top: .05rem solid var(--md-typeset-table-color); padding: .4em 0; }
  .md-typeset table:not([class]) td[data-column]::before { content: attr(data-column) ": "; opacity: .7; }
  .md-typeset table:not([class]) td:empty { display: none; }
}
</style>"""
WORD = re.compile(r"\S+")
FENCE = re.compile(r"^(\s*```\w+) .*$", re.MULTILINE)


@event_priority(100)  # before mike, which adds the version to site_url
def on_config(config):
    config.copyright = f"Rollcall {VERSION}"
    config.site_url = f"https://{OWNER}.github.io/{NAME}/"
    config.extra["social"] = [{"icon": "fontawesome/brands/github", "link": REPOSITORY}]  # repo_url would ask GitHub for its stars
    return config


def on_page_markdown(markdown, page, **_):
    """Links to files outside docs/ lead to the repository, at the version of the site. A fence gets its language alone, and an item
    after an indented paragraph a line between, without which Python-Markdown does not see either."""

    def target(link):
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link[0]))
        return link[0] if path.startswith("docs/") else f"{FILES}/{path}"

    if "```mermaid" in markdown:
        raise PluginError(f"{page.file.src_uri}: only GitHub draws mermaid, so use text or a table")
    markdown = ITEM.sub(r"\1\n", markdown)
    return LINK.sub(target, FENCE.sub(r"\1", markdown))


def on_page_content(html, **_):
    """Each cell of a table gets the name of its column, and each word of code an element, for STYLE."""

    def name(table):
        columns = [TAG.sub("", head).replace('"', "&quot;") for head in HEAD.findall(table[0])]

        def row(cells):
            names = iter(columns)

            def cell(tag):
                column = next(names, "")
                return f'<td data-column="{column}"{tag[1]}>' if column else tag[0]

            return re.sub(r"<td([^>]*)>", cell, cells[0])

        return ROW.sub(row, table[0])

    html = CODE.sub(lambda code: "<code>" + WORD.sub(r'<span class="word">\g<0></span>', code[1]) + "</code>", html)
    return TABLE.sub(name, html)


def on_post_page(output, **_):
    return output.replace("</head>", STYLE + "</head>", 1)
