"""Makes the site: copies docs/ to FOLDER/src, adds the pages that are made from the program, and runs mdBook.

Pages made from the program: commands (`fairgate manual`), options of the configuration and codes of errors (the files of
crates/fairgate/tests/cli/surface, which a test compares with the program), the API (its OpenAPI document), and the schema
of the configuration for editors.

Usage: make_site.py --fairgate PROGRAM --mdbook PROGRAM FOLDER
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from config_schema import schema

ROOT = Path(__file__).parents[2]
SURFACE = ROOT / "crates/fairgate/tests/cli/surface"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
SCHEMA = "fairgate.schema.json"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fairgate", type=Path, required=True)
    parser.add_argument("--mdbook", type=Path, required=True)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    source = asked.folder / "src"
    shutil.rmtree(asked.folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source)
    here = Path(__file__).parent
    shutil.copy(here / "book.toml", asked.folder)
    shutil.copy(here / "SUMMARY.md", source)
    (source / "README.md").unlink()
    write(source / "index.md", (ROOT / "README.md").read_text().replace("](docs/", "]("))
    write(source / "changelog.md", (ROOT / "CHANGELOG.md").read_text())
    subprocess.run([asked.fairgate, "manual", "--format", "markdown", source], check=True, env=bare_environment())
    options = (SURFACE / "configuration.txt").read_text().splitlines()
    write(source / "options.md", options_page(options))
    write(source / SCHEMA, json.dumps(schema(options, (ROOT / "docs/configuration.md").read_text()), indent=1) + "\n")
    write(source / "codes.md", codes_page((SURFACE / "codes.txt").read_text().splitlines()))
    document = openapi(asked.fairgate)
    write(source / "openapi.json", json.dumps(document, indent=1) + "\n")
    write(source / "api.md", api_page(document))
    for page in source.rglob("*.md"):
        mend_links(page, source)
    subprocess.run([asked.mdbook, "build", asked.folder], check=True)
    broken = broken_links(asked.folder / "book")
    if broken:
        sys.exit("links that lead nowhere:\n" + "\n".join(broken))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def bare_environment():
    """The environment without variables that change what the program says."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FAIRGATE_")}


def mend_links(page, source):
    """Rewrites links to files outside docs/: pages go to their place in the book, other files are copied into it."""
    moved = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "docs/README.md": "index.md"}
    text = page.read_text()
    # The folder that links of this page start from: index.md and changelog.md come from the top of the repository.
    top = page.name in ("index.md", "changelog.md") and page.parent == source
    origin = ROOT if top else (ROOT / "docs" / page.relative_to(source)).parent

    def mended(match):
        target, _, anchor = match[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = (origin / target).resolve()
        if (page.parent / target).exists() and not target.startswith(".."):
            return match[0]
        if not path.is_relative_to(ROOT):
            return match[0]
        name = path.relative_to(ROOT).as_posix()
        if name in moved:
            place = source / moved[name]
        elif name.startswith("docs/"):
            place = source / name.removeprefix("docs/")
        elif path.is_file():
            # mdBook would read a page; a copy with another ending is shown as it is.
            place = source / "files" / (name + ".txt" if name.endswith(".md") else name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
        elif path.is_dir():
            place = copied_folder(path, source / "files" / name) / "index.html"
        else:
            return match[0]
        link = os.path.relpath(place, page.parent)
        anchor = "" if "files" in place.parts else (f"#{anchor}" if anchor else "")
        return f"{match[1]}{link}{anchor}{match[3]}"

    page.write_text(LINK.sub(mended, text))


def copied_folder(folder, place):
    """Copies the files of a folder, with a page that lists them."""
    place.mkdir(parents=True, exist_ok=True)
    files = sorted(file for file in folder.iterdir() if file.is_file())
    for file in files:
        shutil.copy(file, place)
    items = "".join(f'<li><a href="{file.name}">{file.name}</a></li>' for file in files)
    title = folder.relative_to(ROOT).as_posix()
    write(place / "index.html", f"<!doctype html><title>{title}</title><h1>{title}</h1><ul>{items}</ul>\n")
    return place


def options_page(options):
    rows = []
    for line in options:
        name, _, rest = line.partition(" = ")
        known = re.match(r"(.*) \((live|restart)\)$", rest)
        default, change = known.groups() if known else (rest, "")
        rows.append(f"| `{name}` | {default} | {change} |")
    table = "\n".join(["| option | default | change |", "|---|---|---|", *rows])
    return (
        "# Options of the configuration\n\nAll options with their defaults. *live* means that a reload applies a change, "
        "*restart* that it refuses it. [Configuration](configuration.md) explains each one.\n\n"
        f"[{SCHEMA}]({SCHEMA}) is a JSON Schema of their names and values. An editor with a YAML language server completes and checks "
        f"them with this line at the top of the file:\n\n```text\n# yaml-language-server: $schema={SCHEMA}\n```\n\n"
        "`fairgate check FILE` also checks what belongs together.\n\n" + table + "\n"
    )


def codes_page(lines):
    rows = []
    for line in lines:
        page, status, code = (line.split(": ") + ["", ""])[:3]
        rows.append(f"| `{code or status}` | {status if code else ''} | [{page.removesuffix('.md')}]({page}) |")
    return "# Codes of errors\n\n| code | status | described in |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def openapi(fairgate):
    """Starts the program and asks it for its OpenAPI document."""
    with tempfile.TemporaryDirectory() as folder:
        words = [fairgate, "serve", "--listen", "127.0.0.1:0", "--data-dir", f"{folder}/data"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=bare_environment()) as serve:
            try:
                address = next(re.finditer(r"listens on (\S+)", serve.stdout.readline()))[1]
                token = Path(f"{folder}/data/admin-token").read_text().strip()
                ask = urllib.request.Request(f"{address}/api/v1/openapi.json", headers={"Authorization": f"Bearer {token}"})
                with urllib.request.urlopen(ask, timeout=20) as answer:
                    return json.load(answer)
            finally:
                serve.terminate()


def api_page(document):
    text = [
        "# API", "", document["info"]["description"], "",
        "[openapi.json](openapi.json) is the whole document; a running gateway has its own at `/api/v1/openapi.json`. "
        "The APIs for models are those of OpenAI and Anthropic: see [Gateway](gateway.md).",
    ]
    groups = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method in ("get", "post", "put", "patch", "delete"):
                tag = (operation.get("tags") or ["other"])[0]
                groups.setdefault(tag, []).append((path, method.upper(), operation.get("summary", "")))
    for tag in sorted(groups):
        text += ["", f"## {tag.capitalize()}", "", "| | path | |", "|---|---|---|"]
        text += [f"| {method} | `{path}` | {' '.join(summary.split())} |" for path, method, summary in sorted(groups[tag])]
    return "\n".join(text) + "\n"


def broken_links(book):
    """Links of the finished pages to files or headings that are not there."""
    ids = {}
    pages = {page: page.read_text(errors="replace") for page in book.rglob("*.html")}
    for page, text in pages.items():
        ids[page] = set(re.findall(r'\bid="([^"]+)"', text))
    broken = []
    for page, text in pages.items():
        if page.name in ("print.html", "404.html"):
            continue
        for link in set(re.findall(r'<a[^>]* href="([^"]+)"', text)):
            target, _, anchor = link.partition("#")
            if "://" in link or link.startswith(("mailto:", "data:")):
                continue
            place = page if not target else (page.parent / target).resolve()
            if place.is_dir():
                place = place / "index.html"
            if not place.exists():
                broken.append(f"{page.relative_to(book)}: {link}")
            elif anchor and place in ids and anchor not in ids[place]:
                broken.append(f"{page.relative_to(book)}: {link}")
    return sorted(broken)


if __name__ == "__main__":
    main()
