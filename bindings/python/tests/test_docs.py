"""Every program of docs/python.md runs as printed."""

import pathlib
import re
import subprocess
import sys

import pytest

DOCS = pathlib.Path(__file__).parents[3] / "docs" / "python.md"
PROGRAMS = re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", DOCS.read_text(), re.S | re.M)


@pytest.mark.parametrize(("title", "program"), PROGRAMS, ids=[title for title, _ in PROGRAMS])
def test_a_documented_program_runs_as_printed(title: str, program: str, tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-X", "dev", "-c", program]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, ""), f"{title}: {result.stderr}"


def test_all_programs_were_found() -> None:
    assert len(PROGRAMS) == DOCS.read_text().count("```python")
