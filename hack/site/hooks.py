"""What MkDocs does not do by itself: the version of the site, and links that leave docs/."""

import os
import posixpath
import re

from mkdocs.exceptions import PluginError

VERSION = os.environ.get("SITE_VERSION", "dev")
REPOSITORY = "https://github.com/rollcall-dev/rollcall/blob/" + ("main" if VERSION == "dev" else VERSION)
LINK = re.compile(r"(?<=\]\()(?:\.\./)+[^)\s]+")
ITEM = re.compile(r"(\n\n(?: {2}[^\n]+\n)+)(?=\d+\. )")
FENCE = re.compile(r"^(\s*```\w+) .*$", re.MULTILINE)


def on_config(config):
    config.copyright = f"Rollcall {VERSION}"
    return config


def on_page_markdown(markdown, page, **_):
    """Links to files outside docs/ lead to the repository, at the version of the site. A fence gets its language alone, and an item
    after an indented paragraph a line between, without which Python-Markdown does not see either."""

    def target(link):
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link[0]))
        return link[0] if path.startswith("docs/") else f"{REPOSITORY}/{path}"

    if "```mermaid" in markdown:
        raise PluginError(f"{page.file.src_uri}: only GitHub draws mermaid, so use text or a table")
    markdown = ITEM.sub(r"\1\n", markdown)
    return LINK.sub(target, FENCE.sub(r"\1", markdown))
