"""Compares an expected with a got result (SCENARIO.md section 9).

Key order never matters, list order always does, absent and `null` differ. An error that was recorded without a code and
in words of the reference's own is compared as "there is an error": ours is coded on purpose.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

FREE = "$message"
KEYED = "$text:"
NOTHING = object()


class Difference(NamedTuple):
    path: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"  {self.path}: expected {_show(self.expected)}, got {_show(self.got)}"


def _show(side: Any) -> str:
    if side is NOTHING:
        return "nothing"
    text = json.dumps(side, ensure_ascii=False)
    return f"{text[:220]}…" if len(text) > 220 else text


def differences(expected: Any, got: Any, path: str = "") -> list[Difference]:
    """What is not as it should be."""
    if isinstance(expected, dict) and isinstance(got, dict):
        at = (lambda key: f"{path}.{key}") if path else str
        found = []
        for key, wanted in expected.items():
            found += differences(wanted, got[key], at(key)) if key in got else [Difference(at(key), wanted, NOTHING)]
        is_uncoded = expected.get("message") == FREE and "code" not in expected
        for key, given in got.items():
            is_ours = is_uncoded and key in ("code", "cause")
            if key not in expected and not is_ours:
                found.append(Difference(at(key), NOTHING, given))
        return found
    if isinstance(expected, list) and isinstance(got, list):
        found = []
        for index in range(max(len(expected), len(got))):
            place = f"{path}[{index}]"
            if index >= len(got):
                found.append(Difference(place, expected[index], NOTHING))
            elif index >= len(expected):
                found.append(Difference(place, NOTHING, got[index]))
            else:
                found += differences(expected[index], got[index], place)
        return found
    if isinstance(expected, str) and isinstance(got, str):
        return [] if _matches(expected, got) else [Difference(path, expected, got)]
    # True is no 1 in JSON.
    same = expected == got and isinstance(expected, bool) == isinstance(got, bool)
    return [] if same else [Difference(path, expected, got)]


def _matches(expected: str, got: str) -> bool:
    if expected.endswith(FREE):
        before = expected[: -len(FREE)]
        return got.startswith(before) and len(got) > len(before)
    if expected.startswith(KEYED) and re.fullmatch("[A-Z_]*", expected[len(KEYED) :]):
        # A bare key also stands for more text behind it.
        return got.startswith(expected) and not got[len(expected) :].startswith("_")
    return expected == got
