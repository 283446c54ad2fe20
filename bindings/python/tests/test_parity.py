"""The parity table is true: what it names exists, in Python and in the core."""

import pathlib
import re

import pytest

import turnwheel as tw

ROOT = pathlib.Path(__file__).parents[3]
TABLE = (ROOT / "tests" / "parity" / "hosts.md").read_text()
LINES = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines() if line.startswith("| ")]
HEAD, ROWS = LINES[0], [dict(zip(LINES[0], line, strict=True)) for line in LINES[1:]]
HOSTS = HEAD[1:-1]
CORE = "\n".join(path.read_text() for path in (ROOT / "core" / "src").rglob("*.rs"))


@pytest.mark.parametrize("row", ROWS, ids=[row["what"] for row in ROWS])
def test_a_row_names_what_exists_or_says_why_not(row: dict[str, str]) -> None:
    rust, python = row["Rust"], row["Python"]
    assert all(row[host] for host in HOSTS) or row["if not"], "a host that lacks something says why"
    for name in re.findall(r"`(.+?)`", python):
        found: object = tw
        for part in name.split("."):
            found = getattr(found, part)
    for name in re.findall(r"`(.+?)`", rust):
        last = name.split("::")[-1]
        assert re.search(rf"\b(fn|struct|trait|enum|const|type) {last}\b", CORE), f"the core has no {name}"


def test_every_public_python_name_is_in_the_table_or_is_a_part_of_something_that_is() -> None:
    parts = {"AgentScope", "EventStream", "Message", "Opening", "RunResult", "Registration", "ToolOutput", "Signal"}
    parts |= {
        "testing",
        "view",
        "sync",
        "Event",
        "ModelRequest",
        "Models",
        "Reply",
        "Notice",
        "Next",
        "Agents",
        "__version__",
    }
    classes = {name: getattr(tw, name) for name in tw.__all__ if isinstance(getattr(tw, name), type)}
    parts |= {name for name, found in classes.items() if issubclass(found, Exception)}
    parts |= {"PreStep", "Request", "RequestError", "PreExecute", "PostExecute", "Assemble", "TurnStopping"}
    named = set(re.findall(r"`(\w+)[.`]", TABLE))
    assert set(tw.__all__) - parts - named == set()


def test_the_error_codes_are_the_pinned_ones() -> None:
    pinned = (ROOT / "tests" / "abi" / "codes.txt").read_text()
    assert "".join(f"{number} {name}\n" for name, number in tw.CODES.items()) == pinned
