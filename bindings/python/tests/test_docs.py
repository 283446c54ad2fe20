"""Every program of docs/python.md and docs/models.md runs as printed."""

import pathlib
import re
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "docs"
TEXT = "\n".join((FOLDER / name).read_text() for name in ("python.md", "models.md"))
# A program belongs to the heading above it.
PROGRAMS = re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", TEXT, re.S | re.M)


@pytest.mark.parametrize(("title", "program"), PROGRAMS, ids=[title for title, _ in PROGRAMS])
def test_a_documented_program_runs_as_printed(title: str, program: str, tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-X", "dev", "-c", program]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, ""), f"{title}: {result.stderr}"


def test_all_programs_were_found() -> None:
    assert len(PROGRAMS) == TEXT.count("```python")
