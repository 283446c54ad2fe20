"""How many instructions a turn takes, counted by callgrind: the same on a busy machine as on a quiet one.

    instructions.py <workloads program>           compares with bench/instructions.txt, fails beyond the tolerance
    instructions.py <workloads program> --bless   writes bench/instructions.txt anew

Each workload runs 50 and 150 turns; the difference is the cost of a hundred. Checked are the instructions in our own
program and the allocations it asks for: what the C library spends on an allocation or a copy differs between systems,
so the total is written down for the reader and not checked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RECORD = Path(__file__).parents[2] / "bench" / "instructions.txt"
TURNS = (50, 150)
TOLERANCE = 0.03
WORKLOADS = ("w1", "w2")
CHECKED = ("own", "allocations")
ALLOCATORS = {"malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"}
HEAD = f"""\
# Instructions a turn in Rust, counted by callgrind (tests/bench/instructions.py): `make instructions` checks them
# with a tolerance of {TOLERANCE:.0%}, `make instructions BLESS=--bless` writes them anew. w1 is 64 text deltas, w2 a
# tool call and 16 deltas. `own` are instructions of the program itself, `allocations` are calls of malloc and its kin,
# `total` has the C library's instructions too and is not checked.
# workload        own  allocations      total
"""

Counts = dict[str, float]


def count(program: str, workload: str, turns: int) -> Counts:
    """Runs the program under callgrind and adds its costs up by object."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        command += ["--compress-strings=no", "--compress-pos=no", program, "turns", workload, str(turns)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"callgrind failed:\n{done.stderr}")
        return read(out.read_text(), Path(program).name)


def read(profile: str, own: str) -> Counts:
    """The costs in callgrind's format: `ob=` names what follows, and the line after `calls=` is inclusive."""
    counts = dict.fromkeys(("own", "allocations", "total"), 0.0)
    here, callee, calls = "", "", 0
    for line in profile.splitlines():
        if line.startswith("ob="):
            here = line[3:]
        elif line.startswith("cfn="):
            callee = line[4:]
        elif line.startswith("calls="):
            calls = int(line[6:].split()[0])
        elif re.match(r"[+*\d]", line):
            if calls:
                if Path(here).name == own and callee in ALLOCATORS:
                    counts["allocations"] += calls
                calls = 0
                continue
            cost = int(line.split()[-1])
            counts["total"] += cost
            if Path(here).name == own:
                counts["own"] += cost
    return counts


def a_turn(program: str, workload: str) -> Counts:
    few, many = (count(program, workload, turns) for turns in TURNS)
    return {name: (many[name] - few[name]) / (TURNS[1] - TURNS[0]) for name in few}


def recorded() -> dict[str, Counts]:
    lines = [line.split() for line in RECORD.read_text().splitlines() if line and not line.startswith("#")]
    names = ("own", "allocations", "total")
    return {line[0]: dict(zip(names, map(float, line[1:]), strict=True)) for line in lines}


def main() -> None:
    program = os.path.abspath(sys.argv[1])
    found = {workload: a_turn(program, workload) for workload in WORKLOADS}
    if "--bless" in sys.argv:
        rows = [f"{name:10}{c['own']:11.0f}{c['allocations']:13.1f}{c['total']:11.0f}" for name, c in found.items()]
        RECORD.write_text(HEAD + "\n".join(rows) + "\n")
    record, failed = recorded(), False
    for workload, counts in found.items():
        for name, value in counts.items():
            change = value / record[workload][name] - 1
            is_off = name in CHECKED and abs(change) > TOLERANCE
            failed |= is_off
            print(f"{workload} {name:12} {value:10.1f} a turn, {change:+.1%}{'  OFF' if is_off else ''}")
    if failed:
        sys.exit(f"beyond {TOLERANCE:.0%}: find out why; if it is meant, `make instructions BLESS=--bless`")


main()
