#!/usr/bin/env python3
"""Writes the licences of everything that the programs and the Python package contain of others.

    packaging/third_party.py            writes the files anew
    packaging/third_party.py --check    exit status 1 if a file is out of date

There are two files, because the Python package links fewer crates than the programs: packaging/THIRD-PARTY-LICENCES.txt
and bindings/python/THIRD-PARTY-LICENCES.txt. They name each crate that is linked on Linux with its version, its licence
and the texts that it comes with. A crate whose package has no text of its licence is listed with the standard text. The
crates' sources must be in cargo's registry, so the machine must have built the programs once.
"""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = "THIRD-PARTY-LICENCES.txt"
TARGET = "x86_64-unknown-linux-gnu"
LICENCE_FILE = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
#: The text of the licence of packages that come with none, other than MIT and Apache-2.0, whose texts the project has.
BSD_3 = """Copyright (c) {owners}

Redistribution and use in source and binary forms, with or without modification, are permitted provided that the following
conditions are met:

1. Redistributions of source code must retain the above copyright notice, this list of conditions and the following
   disclaimer.
2. Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following
   disclaimer in the documentation and/or other materials provided with the distribution.
3. Neither the name of the copyright holder nor the names of its contributors may be used to endorse or promote products
   derived from this software without specific prior written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES,
INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL,
EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF
USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT
LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS SOFTWARE, EVEN IF ADVISED
OF THE POSSIBILITY OF SUCH DAMAGE."""
#: The files: where each is, the manifest whose packages are linked, those packages, and folders with code of the pages.
FILES = [
    (
        ROOT / "packaging" / FILE,
        ROOT / "Cargo.toml",
        ["fairgate", "fairgate-sim"],
        [ROOT / "crates/fairgate-dashboard/ui/vendor/lit-html", ROOT / "crates/fairgate-dashboard/ui/vendor/uplot"],
    ),
    (ROOT / "bindings/python" / FILE, ROOT / "bindings/python/Cargo.toml", ["fairgate-python"], []),
]


def metadata(manifest):
    words = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={TARGET}"]
    return json.loads(subprocess.check_output([*words, f"--manifest-path={manifest}"]))


def linked(manifest, roots):
    """Returns the packages of others that the roots link. Macros and build scripts run only while they are built."""
    found = metadata(manifest)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    todo = [id for id, package in packages.items() if package["name"] in roots and package["source"] is None]
    seen = set(todo)
    while todo:
        for dependency in nodes[todo.pop()]["deps"]:
            id = dependency["pkg"]
            is_macro = any("proc-macro" in target["kind"] for target in packages[id]["targets"])
            is_normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_normal and not is_macro and id not in seen:
                seen.add(id)
                todo.append(id)
    of_others = [packages[id] for id in seen if packages[id]["source"] is not None]
    return sorted(of_others, key=lambda package: (package["name"], package["version"]))


def texts_of(folder):
    """Returns the texts of licences and notices in the folder of a package, also those in a folder of their own."""
    files = [file for file in sorted(folder.iterdir()) if LICENCE_FILE.match(file.name)]
    files = [inner for file in files for inner in (sorted(file.iterdir()) if file.is_dir() else [file])]
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files if file.suffix not in (".html", ".rs")]
    return ["\n".join(line.rstrip() for line in text.strip().splitlines()) for text in texts]


def standard_texts(package):
    """Returns the standard texts of the licences of a package that comes without texts."""
    licence, owners = package["license"] or "", ", ".join(package["authors"]) or f"the authors of {package['name']}"
    texts = []
    if "MIT" in licence:
        mit = (ROOT / "LICENSE-MIT").read_text()
        texts.append(re.sub(r"^Copyright .*$", f"Copyright (c) {owners}", mit, flags=re.MULTILINE).strip())
    if "Apache-2.0" in licence:
        texts.append((ROOT / "LICENSE-APACHE").read_text().strip())
    if "BSD-3-Clause" in licence:
        texts.append(BSD_3.format(owners=owners))
    assert texts, f"{package['name']} {package['version']} ({licence}) comes with no text of its licence"
    return texts


def written(manifest, roots, vendored):
    """Returns the text of one file."""
    owners, parts = {}, []
    for folder in vendored:
        parts.append((f"{folder.name} (JavaScript of the pages)", "see its text", texts_of(folder)))
    for package in linked(manifest, roots):
        texts = texts_of(Path(package["manifest_path"]).parent) or standard_texts(package)
        parts.append((f"{package['name']} {package['version']}", package["license"] or "see its text", texts))
    table = []
    for name, licence, texts in parts:
        numbers = []
        for text in texts:
            key = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
            number = owners.setdefault(key, (len(owners) + 1, text, []))
            number[2].append(name)
            numbers.append(str(number[0]))
        table.append(f"{name}: {licence}; texts {', '.join(dict.fromkeys(numbers))}")
    heading = f"Licences of the software of others in {' and '.join(roots)}.\nMade by packaging/third_party.py."
    sections = [heading, "\n".join(table)]
    for number, text, names in owners.values():
        sections.append(f"{'=' * 80}\nText {number}, of {', '.join(dict.fromkeys(names))}\n{'=' * 80}\n\n{text}")
    return "\n\n".join(sections) + "\n"


def main():
    is_check = sys.argv[1:] == ["--check"]
    for file, manifest, roots, vendored in FILES:
        text = written(manifest, roots, vendored)
        if not is_check:
            file.write_text(text)
        elif not file.is_file() or file.read_text() != text:
            sys.exit(f"{file.relative_to(ROOT)} is out of date: run packaging/third_party.py")


if __name__ == "__main__":
    main()
