"""Every step of docs/tutorial.md runs as printed, in order, in one folder, and says what the page says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
STEPS = re.findall(r"^## (\d+)\. (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.S | re.M)


def blocks(body: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", body, re.S | re.M)


def test_the_tutorial_has_ten_steps_and_every_step_has_a_program_and_what_it_prints() -> None:
    assert [number for number, _, _ in STEPS] == [str(number) for number in range(1, 11)]
    for number, title, body in STEPS:
        kinds = [kind for kind, _ in blocks(body)]
        assert "python" in kinds and kinds[-1] == "output", f"{number}. {title}"
    assert sum(len(blocks(body)) for _, _, body in STEPS) == TEXT.count("```") / 2


def test_every_step_runs_as_printed_and_says_what_the_page_says(tmp_path: Path) -> None:
    offline = {name: value for name, value in os.environ.items() if not name.startswith("TURNWHEEL_")}
    for number, title, body in STEPS:
        found = blocks(body)
        entered = "".join(text for kind, text in found if kind == "input")
        said = ""
        for kind, program in found:
            if kind != "python":
                continue
            file = tmp_path / f"step{number}.py"
            file.write_text(program)
            command = [sys.executable, "-X", "dev", str(file)]
            done = subprocess.run(
                command,
                cwd=tmp_path,
                env=offline,
                input=entered,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            dies = "SIGKILL" in program
            assert (done.returncode, done.stderr) == (-signal.SIGKILL if dies else 0, ""), (
                f"{number}. {title}: {done.stderr}"
            )
            said += done.stdout
        assert said == "".join(text for kind, text in found if kind == "output"), f"{number}. {title}"


def test_every_step_is_typed(tmp_path: Path) -> None:
    files = []
    for number, _, body in STEPS:
        for index, (kind, program) in enumerate(blocks(body)):
            if kind == "python":
                file = tmp_path / f"step{number}_{index}.py"
                file.write_text(program)
                files.append(str(file))
    command = [sys.executable, "-m", "mypy", "--strict", "--scripts-are-modules", *files]
    done = subprocess.run(command, cwd=ROOT / "bindings" / "python", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
