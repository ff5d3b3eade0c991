"""The licences of others that the packages contain: current, complete, and in every package."""

import filecmp

from conftest import run


def test_the_files_are_current(packaging):
    run(packaging / "third_party.py", "--check")


def test_the_pages_code_of_others_has_its_licences(packaging, root):
    text = (packaging / "THIRD-PARTY-LICENCES.txt").read_text()
    for folder in (root / "crates/fairgate-dashboard/ui/vendor").iterdir():
        if folder.is_dir():
            lines = (folder / "LICENSE").read_text().splitlines()
            assert [line for line in lines if line.strip() and line.rstrip() not in text] == [], folder.name


def test_the_python_package_has_the_projects_licences(root):
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        assert filecmp.cmp(root / name, root / "bindings/python" / name, shallow=False), name
