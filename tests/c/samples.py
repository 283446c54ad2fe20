"""Writes the samples of a guide as files and prints their names: a block of C or C++ and the `text` block behind it."""

import re
import sys
from pathlib import Path

guide, folder = sys.argv[1:]
samples = re.findall(r"```(c|cpp)\n(.*?)```\s+(?:[^`\n]+\n\s*)?```text\n(.*?)```", Path(guide).read_text(), re.DOTALL)
for index, (language, program, output) in enumerate(samples):
    name = Path(folder) / f"sample{index}.{language}"
    name.write_text(program)
    name.with_suffix(".txt").write_text(output)
    print(name)
