"""`python run.py [--pending FILE] [--decisions DIR] [--ran FILE] [--show NAME] DIR`: runs the scenarios of a folder
through the public interface of the Python package and judges each.

`tests/conformance/SCENARIO.md` defines the format; the Rust runner there checks the files themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from compare import differences
from result import run_scenario

_SHOWN = 14


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=Path, help="names of scenarios that are known to fail, one a line")
    parser.add_argument("--decisions", type=Path, help="a folder of deliberate deviations")
    parser.add_argument("--ran", type=Path, metavar="FILE", help="note there the names of the scenarios that passed")
    parser.add_argument("--show", metavar="NAME", help="print the result of one scenario")
    parser.add_argument("folder", type=Path)
    return parser.parse_args()


def _read(options: argparse.Namespace, name: str) -> tuple[dict[str, Any], Any]:
    scenario = json.loads((options.folder / f"{name}.json").read_text())
    if scenario["name"] != name:
        raise ValueError(f"the scenario is called {scenario['name']!r}")
    decision: dict[str, Any] = {}
    if options.decisions is not None and (path := options.decisions / f"{name}.json").exists():
        decision = json.loads(path.read_text())
    if "model" in decision:
        scenario["model"] = decision["model"]
    return scenario, decision.get("expect") or scenario.get("expect")


async def _play(scenario: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    unheard: list[str] = []

    def note(_: asyncio.AbstractEventLoop, facts: dict[str, Any]) -> None:
        # What a listener of the scenario raises is reported, and is no problem.
        if not facts["message"].startswith("a listener of "):
            unheard.append(f"the loop was told: {facts['message']} {facts.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(note)
    result, problems = await run_scenario(scenario)
    await asyncio.sleep(0)
    gc.collect(0)
    return result, [*problems, *unheard]


def _judge(options: argparse.Namespace, name: str) -> list[str]:
    scenario, expected = _read(options, name)
    if expected is None:
        return ["  there is no `expect`"]
    result, problems = asyncio.run(_play(scenario))
    lines = [f"  {problem}" for problem in problems] + [str(each) for each in differences(expected, result)]
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], f"  and {more} more"] if more > 0 else lines


def main() -> int:
    options = _arguments()
    if options.show is not None:
        print(json.dumps(asyncio.run(_play(_read(options, options.show)[0]))[0], indent=2))
        return 0
    pending: set[str] = set()
    if options.pending is not None:
        listed = (line.split("#")[0].strip() for line in options.pending.read_text().splitlines())
        pending = {line for line in listed if line}
    names = sorted(path.stem for path in options.folder.glob("*.json"))
    if not names:
        print(f"{options.folder} holds no scenario", file=sys.stderr)
        return 2
    passed: list[str] = []
    failed = 0
    for name in names:
        try:
            lines = _judge(options, name)
        except Exception:
            lines = [f"  {traceback.format_exc()}"]
        if name in pending and lines:
            print(f"pending {name}")
            continue
        if name in pending:
            lines = ["  listed as pending but passes"]
        if lines:
            failed += 1
            print("\n".join([f"FAIL {name}", *lines]))
        else:
            passed.append(name)
    if options.ran is not None:
        options.ran.parent.mkdir(parents=True, exist_ok=True)
        options.ran.write_text("".join(f"{name}\n" for name in passed))
    print(f"{len(passed)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
