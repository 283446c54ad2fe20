"""What `make test` ran, from the notes that each part leaves in a folder:

    rust.xml or rust.txt        nextest's JUnit file, or the output of cargo's own runner
    python.xml, node.xml        JUnit files
    scenarios-HOST-FOLDER.txt   the names of the scenarios that passed, one a line
    interchange.txt             that the program of tests/interchange ran to its end

Something that was skipped did not run, and something that failed once did not pass.
"""

import re
import xml.etree.ElementTree as xml
from pathlib import Path

# Rust tests that carry others: a test of C is a function that its program's `main` calls.
SCENARIOS_IN_RUST = [
    ("all", "every_scenario_does_what_was_recorded_or_decided"),
    ("all", "every_scenario_of_our_own_does_what_was_reasoned"),
]
SAMPLES_IN_RUST = ("jsonl_samples", "every_sample_is_read_written_repaired_or_refused_as_the_reference_does")
C_IN_RUST = {
    "abi.c": ("c", "the_interface_does_what_it_says_and_refuses_what_is_wrong"),
    "cases.c": ("c", "reported_faults_of_bindings_do_not_happen"),
}
HOSTS = ["c", "node", "python"]


class Ran:
    """Asks whether a test ran and passed."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.problems = []
        self.rust = self._rust()
        self.python = self._junit("python.xml", python_key)
        self.node = self._junit("node.xml", lambda case: (None, case.get("name", "")))
        self.scenarios = {host: self._scenarios(host) for host in HOSTS}

    def _junit(self, name, key_of):
        path = self.folder / name
        if not path.is_file():
            self.problems.append(f"{path} is not there: that part did not run to its end")
            return set()
        passed, others = set(), set()
        for case in xml.parse(path).iter("testcase"):
            has_passed = all(case.find(kind) is None for kind in ("failure", "error", "skipped"))
            (passed if has_passed else others).add(key_of(case))
        return passed - others

    def _rust(self):
        if (self.folder / "rust.txt").is_file():
            return self._libtest((self.folder / "rust.txt").read_text(encoding="utf-8"))
        return self._junit("rust.xml", lambda case: rust_key(case.get("classname", ""), case.get("name", "")))

    def _libtest(self, output):
        passed, others, binary = set(), set(), ""
        for line in output.splitlines():
            running = re.match(r"\s*Running (?:unittests )?(\S+)", line)
            if running:
                path = Path(running.group(1))
                binary = f"::{path.stem}" if path.parts[0] == "tests" else ""
                continue
            told = re.match(r"test (\S+) .*\.\.\. (\w+)", line) or re.match(r"test (\S+) \.\.\. (\w+)", line)
            if told:
                (passed if told.group(2) == "ok" else others).add(rust_key(binary, told.group(1)))
        return passed - others

    def _scenarios(self, host):
        names = set()
        files = sorted(self.folder.glob(f"scenarios-{host}-*.txt"))
        if len(files) < 2:
            self.problems.append(f"{self.folder} does not say that both folders of scenarios ran in {host}")
        for path in files:
            names.update(path.read_text(encoding="utf-8").split())
        return names

    def scenario(self, name):
        missing = [host for host in HOSTS if name not in self.scenarios[host]]
        if not all(test in self.rust for test in SCENARIOS_IN_RUST):
            missing.append("rust")
        return f"scenario {name!r} did not run and pass in {', '.join(missing)}" if missing else None

    def sample(self, reference):
        return None if SAMPLES_IN_RUST in self.rust else f"{reference!r}: the test of the samples did not run and pass"

    def test(self, path, function):
        """Whether a function of a file ran."""
        kinds = {".rs": self._of_rust, ".py": self._of_python, ".c": self._of_c, ".mjs": self._of_node}
        found = kinds[path.suffix](path, function)
        return None if found else f"{path.name}::{function} did not run and pass"

    def _of_rust(self, path, function):
        if path.parts[-3:] == ("tests", "interchange", "main.rs"):
            return (self.folder / "interchange.txt").is_file()
        # A unit test says its module, a test of the public interface its file.
        return (path.stem if path.parent.name == "tests" else "", function) in self.rust

    def _of_python(self, path, function):
        return (path.stem, function) in self.python

    def _of_node(self, _, name):
        return (None, name) in self.node

    def _of_c(self, path, function):
        called = re.search(rf"^\s+{re.escape(function)}\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        return called is not None and C_IN_RUST.get(path.name) in self.rust


def python_key(case):
    """The test's file and its function, which may run with several parameters."""
    return (case.get("classname", "").rpartition(".")[2], case.get("name", "").partition("[")[0])


def rust_key(binary, name):
    """The test's file ("" for unit tests) and its function."""
    file = binary.rpartition("::")[2] if "::" in binary else ""
    return ("" if file.startswith("bin/") else file, name.rpartition("::")[2])
