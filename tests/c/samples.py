"""Writes the samples of guides as files and prints their names: a block of C or C++ and the `text` block behind it.

samples.py FOLDER GUIDE...
"""

import re
import sys
from pathlib import Path

folder, *guides = sys.argv[1:]
text = "\n".join(Path(guide).read_text() for guide in guides)
samples = re.findall(r"```(c|cpp)\n(.*?)```\s+(?:[^`\n]+\n\s*)?```text\n(.*?)```", text, re.DOTALL)
for index, (language, program, output) in enumerate(samples):
    name = Path(folder) / f"sample{index}.{language}"
    name.write_text(program)
    name.with_suffix(".txt").write_text(output)
    print(name)
