"""Runs drivers in turn and writes bench/results.json and bench/results.md. `tests/bench/README.md` has the workloads.

    run.py --rust PROGRAM [--python PYTHON] [--node FOLDER] [--peers PYTHON] [--rounds N] [--only w1,w2]

Every cell is a process of its own, and in each round the drivers of a workload take turns, so that whatever else the
machine does meets all of them. Ratios are of one run: absolute times are this machine's, at that moment.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "bench"
WORKLOADS = ("w1", "w2", "w4", "w1h", "w3", "w5", "w6", "w7", "w8", "cores")
FIGURES = {
    "w1": "us_per_turn",
    "w2": "us_per_turn",
    "w4": "us_per_turn",
    "w1h": "growth",
    "w3": "ms_per_turn",
    "w5": "open_ms",
    "w6": "kib_per_agent",
    "w7": "turns_per_s_64",
    "w8": "cancel_us",
    "cores": "gain",
}
NODE_NAMES = {"w1": "text, no listener", "w2": "a tool turn", "w4": "text, ten listeners and five hooks"}

Driver = dict[str, object]


def drivers(options: argparse.Namespace) -> dict[str, Driver]:
    """Name, command, and the workloads each has."""
    all_of_them: dict[str, Driver] = {"turnwheel-rust": {"command": [options.rust], "has": WORKLOADS}}
    if options.python:
        command = [options.python, str(HERE / "workloads.py")]
        all_of_them["turnwheel-python"] = {"command": command, "has": ("w1", "w2", "w3", "w4", "w1h")}
    if options.node:
        node = Path(options.node) / "node_modules/.bin/node"
        for peer, name in (("turnwheel", "turnwheel-node"), ("reference", "reference"), ("pi", "pi-agent-core")):
            command = [str(node), "turns.mjs", peer]
            all_of_them[name] = {"command": command, "has": tuple(NODE_NAMES), "cwd": options.node, "names": NODE_NAMES}
    if options.peers:
        for name in ("pydantic-ai", "openai-agents"):
            command = [options.peers, str(HERE / "peers" / f"{name.replace('-', '_')}.py")]
            all_of_them[name] = {"command": command, "has": ("w1", "w2", "w1h")}
    return all_of_them


def measure(driver: Driver, workload: str) -> dict[str, float]:
    names = driver.get("names", {})
    assert isinstance(names, dict)
    command = [*driver["command"], names.get(workload, workload)]  # type: ignore[misc]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=driver.get("cwd"))  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    figures = json.loads(done.stdout.splitlines()[-1])
    # The Node drivers' names of the same figures.
    renamed = {"wall": "us_per_turn", "cpu": "cpu_us_per_turn"}
    return {renamed.get(name, name): value for name, value in figures.items()}


def table(samples: dict[str, dict[str, list[dict[str, float]]]], rounds: int) -> str:
    lines = [
        "# Results of one run",
        "",
        f"Written by `tests/bench/run.py`: {rounds} rounds, medians [least to most]. `x` is how often the median of",
        "turnwheel in Rust goes into a cell's (for w1, w2 and w4 of the processor time, which is the steadier number).",
        "Read ratios, not times.",
        "",
        f"Machine: {os.cpu_count()} cores, {os.uname().sysname} {os.uname().machine}, "
        f"Python {sys.version.split()[0]}; load at the end {os.getloadavg()[0]:.1f}.",
    ]
    for workload, cells in samples.items():
        lines += [
            "",
            f"## {workload}",
            "",
            "| | figure | median [least to most] | processor, us | x |",
            "|---|---|---|---|---|",
        ]
        figure = FIGURES[workload]
        base_name = "cpu_us_per_turn" if workload in ("w1", "w2", "w4") else figure
        base = statistics.median(run[base_name] for run in cells["turnwheel-rust"])
        for name, runs in cells.items():
            values = [run[figure] for run in runs]
            cpu = [run["cpu_us_per_turn"] for run in runs if "cpu_us_per_turn" in run]
            against = statistics.median(run[base_name] for run in runs) / base
            spread = f"{statistics.median(values):,.4g} [{min(values):,.4g} to {max(values):,.4g}]"
            spent = f"{statistics.median(cpu):,.4g}" if cpu else ""
            lines.append(f"| {name} | {figure} | {spread} | {spent} | {against:,.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("rust", "python", "node", "peers", "only"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else WORKLOADS
    samples: dict[str, dict[str, list[dict[str, float]]]] = {}
    for at in range(options.rounds):
        for workload in wanted:
            for name, driver in drivers(options).items():
                if workload in driver["has"]:  # type: ignore[operator]
                    found = measure(driver, workload)
                    samples.setdefault(workload, {}).setdefault(name, []).append(found)
                    print(f"round {at + 1} {workload:6}{name:18}{found[FIGURES[workload]]:14.3f}", flush=True)
    OUT.mkdir(exist_ok=True)
    (OUT / "results.json").write_text(json.dumps({"rounds": options.rounds, "samples": samples}, indent=1) + "\n")
    (OUT / "results.md").write_text(table(samples, options.rounds))
    print(table(samples, options.rounds))


main()
