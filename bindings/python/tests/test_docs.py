"""The documents tell the truth: their programs run, print what stands below them, and draw the plots that are shown.

With FAIRGATE_UPDATE_DOCS=1 the outputs and plots are written into the documents instead; look at the difference.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).parents[3] / "docs" / "python"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
UPDATE = bool(os.environ.get("FAIRGATE_UPDATE_DOCS"))
# A program, and right below it what it prints; programs marked `py` need a key or another package.
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.M | re.S)
END_OF_BLOCK = "\x1e\n"


def run_blocks(blocks: list[str], folder: Path) -> list[str]:
    """Runs the programs of a page one after another, as one: what each prints."""
    (folder / "img").mkdir()
    program = "".join(f"{code}\nprint('\\x1e', flush=True)\n" for code in blocks)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.split(END_OF_BLOCK)[:-1]


@pytest.mark.parametrize("page", PAGES)
def test_programs_print_and_draw_what_is_shown(page: str, tmp_path: Path) -> None:
    text = (DOCS / page).read_text()
    found = list(BLOCK.finditer(text))
    assert text.count("```python") == len(found)
    outputs = run_blocks([block["code"] for block in found], tmp_path) if found else []
    if UPDATE:
        for block, output in reversed(list(zip(found, outputs))):
            if block["output"] is not None:
                start, end = block.span("output")
                text = text[:start] + output + text[end:]
        (DOCS / page).write_text(text)
        shutil.copytree(tmp_path / "img", DOCS / "img", dirs_exist_ok=True) if found else None
        return
    for block, output in zip(found, outputs):
        line = text.count("\n", 0, block.start()) + 1
        assert output == (block["output"] or ""), f"{page}, line {line}"
    for plot in (tmp_path / "img").iterdir() if found else ():
        assert plot.read_text() == (DOCS / "img" / plot.name).read_text(), plot.name


def test_every_plot_is_made_by_a_page_and_every_link_leads_somewhere() -> None:
    shown = set()
    for page in PAGES:
        text = (DOCS / page).read_text()
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (DOCS / target).exists(), f"{page}: {target}"
            if target.startswith("img/"):
                shown.add(target)
                assert re.search(r"img/[\w-]*(\{alpha\}|[\w.-]*)\.svg\"", text), f"{page} makes {target}"
    assert shown == {f"img/{path.name}" for path in (DOCS / "img").iterdir()}
    concepts = {"load-function", "starvation", "shares", "budgets", "observing", "limits", "adapters"}
    for page in concepts:
        assert "](img/" in (DOCS / f"{page}.md").read_text(), f"{page} has a plot"


def test_the_notebook_runs_as_shown() -> None:
    fresh = nbformat.read(DOCS / "notebook.ipynb", as_version=4)
    shown = [cell.outputs for cell in fresh.cells if cell.cell_type == "code"]
    assert len(shown) >= 4
    NotebookClient(fresh, timeout=100, kernel_name="python3").execute()
    if UPDATE:
        for cell in fresh.cells:
            cell.metadata.pop("execution", None)
        (DOCS / "notebook.ipynb").write_text(nbformat.writes(fresh) + "\n")
        return
    assert [cell.outputs for cell in fresh.cells if cell.cell_type == "code"] == shown
