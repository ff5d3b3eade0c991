"""Man pages and completions."""

import subprocess

import pytest

from conftest import run

SHELLS = {"bash": "bash", "zsh": "zsh", "fish": "fish"}


def test_man_pages_are_well_formed(fairgate, tmp_path):
    run(fairgate, "manual", "--date", "2026-11-18", tmp_path)
    pages = sorted(tmp_path.glob("*.1"))
    assert len(pages) > 60
    done = run("mandoc", "-T", "lint", "-W", "warning", *pages, check=False)
    # clap_mangen breaks lines beside vertical space, where a break does nothing.
    idle = "skipping paragraph macro: br "
    assert [line for line in done.stdout.splitlines() if idle not in line] == []
    text = run("mandoc", "-T", "ascii", tmp_path / "fairgate-key-create.1").stdout
    assert "fairgate-key-create - Create a key" in text


@pytest.mark.parametrize("shell", SHELLS)
def test_completions_are_scripts_of_their_shell(fairgate, tmp_path, shell):
    script = tmp_path / "completions"
    script.write_text(run(fairgate, "completions", shell).stdout)
    run(SHELLS[shell], "-n", script)


def test_bash_completes_commands_and_options(fairgate, tmp_path):
    script = tmp_path / "completions"
    script.write_text(run(fairgate, "completions", "bash").stdout)
    ask = (
        f'source {script}; COMP_WORDS=({{words}}); COMP_CWORD=$((${{{{#COMP_WORDS[@]}}}} - 1)); COMPREPLY=(); '
        '_fairgate fairgate "${{COMP_WORDS[COMP_CWORD]}}" ""; echo "${{COMPREPLY[@]}}"'
    )
    for words, expected in [("fairgate heal", "health"), ("fairgate key rot", "rotate"), ("fairgate health --ur", "--url")]:
        said = run("bash", "-c", ask.format(words=words)).stdout.split()
        assert said == [expected], words


def test_an_unknown_shell_is_told_the_known(fairgate):
    done = subprocess.run([fairgate, "completions", "tcsh"], text=True, capture_output=True)
    assert done.returncode == 2 and "bash, elvish, fish, powershell, zsh" in done.stderr
