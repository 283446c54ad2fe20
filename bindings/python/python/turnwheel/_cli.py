"""The command line. What it shows is the core's; this module reads arguments and writes streams."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

from . import __version__, _turnwheel
from ._errors import TurnwheelError, UsageError
from .view import Price, Prices, Sessions, _table

OK, FAULT, USAGE = 0, 1, 2
STORE = "TURNWHEEL_STORE"

ABOUT = f"""\
Look at the sessions of turnwheel: nothing but `repair` writes, and a program may go on writing meanwhile.

SESSION is the path of a log (session.jsonl, session.jsonl.zstd, a database or a folder with one session), or the id
of a session in the store at --store, which is a folder or a database (default: ${STORE}, else ./sessions)."""

CODES = """\
exit codes: 0 done; 1 there is no such session, or something is wrong with it; 2 wrong arguments"""


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
        return code
    except UsageError as error:
        return _fail(error, USAGE)
    except TurnwheelError as error:
        return _fail(error, FAULT)
    except BrokenPipeError:
        # Whoever read has seen enough; the interpreter must not complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        print(f"turnwheel: {error}", file=sys.stderr)
        return FAULT
    except KeyboardInterrupt:
        return 130


def _fail(error: TurnwheelError, code: int) -> int:
    print(f"turnwheel: {error} [{error.code}]", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m turnwheel", description=ABOUT, epilog=CODES, formatter_class=layout)
    parser.add_argument("--version", action="version", version=f"turnwheel {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, what: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=what, description=what, epilog=CODES, formatter_class=layout)
        added.set_defaults(run=run)
        if name != "ls":
            added.add_argument("session", metavar="SESSION", help="an id, or the path of a log")
            added.add_argument("--store", "--root", metavar="PATH", help="the folder or database that has the id")
        return added

    show = command("show", "print a timeline of turns, steps, tools and costs", _show)
    show.add_argument("-f", "--follow", action="store_true", help="go on as the session grows, until Ctrl-C")
    show.add_argument("--full", action="store_true", help="every text whole, with prompts, arguments and settings")
    show.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    _prices(show)
    html = command("html", "write one self-contained page that works offline", _html)
    html.add_argument("-o", "--output", required=True, metavar="FILE", help="the page; - for standard output")
    html.add_argument("--progress", action="store_true", help="tell how far it is, also when no terminal listens")
    _prices(html)
    listing = command("ls", "list the sessions of a store", _ls)
    listing.add_argument(
        "store", nargs="?", metavar="PATH", help=f"a folder, log or database (default: ${STORE}, ./sessions)"
    )
    listing.add_argument("--json", action="store_true", help="print the headers as JSON, one a line")
    export = command("export", "write a session as plain JSONL", _export)
    export.add_argument("-o", "--output", default="-", metavar="FILE", help="a new file (default: standard output)")
    verify = command("verify", "examine a session's log", _verify)
    verify.add_argument("--json", action="store_true", help="print the verdict as JSON")
    repair = command("repair", "close what a crash left open, as opening the agent does", _repair)
    repair.add_argument("-n", "--dry-run", action="store_true", help="only print the events that would be appended")
    return parser


def _prices(parser: argparse.ArgumentParser) -> None:
    what = "cost of a million tokens: input, output and, if wanted, cache reads and writes; may be repeated"
    figures = "PROVIDER/MODEL=IN,OUT[,READ[,WRITE]]"
    parser.add_argument("--price", action="append", default=[], metavar=figures, type=_price, help=what)


def _price(text: str) -> tuple[str, Price]:
    model, equals, figures = text.rpartition("=")
    try:
        price: Price | None = Price(*map(float, figures.split(",")))
    except (TypeError, ValueError):
        price = None
    if price is None or not equals or "/" not in model:
        raise argparse.ArgumentTypeError(f"{text!r} is not like openai/gpt=1.25,10")
    return model, price


def _store(path: str | None) -> Sessions:
    path = path or os.environ.get(STORE) or "sessions"
    return Sessions(path)


def _find(arguments: argparse.Namespace) -> tuple[Sessions, str | None]:
    """The sessions to look among, and the id in them; none when there is only one."""
    name: str = arguments.session
    if arguments.store is None and os.path.exists(name):
        return Sessions(name), None
    if arguments.store is None and STORE not in os.environ and not os.path.exists("sessions"):
        message = f"there is no log at {name}, and no store to look for the id in: name one with --store"
        raise UsageError(message, code="INVALID_ARGUMENT")
    return _store(arguments.store), name


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def _show(arguments: argparse.Namespace) -> int:
    sessions, id = _find(arguments)
    prices: Prices = dict(arguments.price)
    # https://no-color.org: a user who wants none anywhere says so once.
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    color = arguments.color == "always" or (arguments.color == "auto" and not plain)
    revision = sessions.revision(id)
    log = sessions.read(id)._log
    timeline = _turnwheel.Timeline(color, arguments.full, _table(prices))
    _write(timeline.header(log))
    pause = 0.2
    try:
        while True:
            while (piece := timeline.more(log, 1000)) is not None:
                _write(piece)
            if not arguments.follow:
                break
            sys.stdout.flush()
            while (now := sessions.revision(id)) == revision:
                time.sleep(pause)
            began = time.monotonic()
            log, revision = sessions.read(id)._log, now
            # A log is read from its beginning each time, so a long one is looked at less often.
            pause = max(0.2, 4 * (time.monotonic() - began))
    except KeyboardInterrupt:
        if not arguments.follow:
            raise
    _write("\n" + timeline.end(log))
    return OK


def _html(arguments: argparse.Namespace) -> int:
    sessions, id = _find(arguments)
    log = sessions.read(id)
    progress = _Progress() if arguments.progress or sys.stderr.isatty() else None
    prices: Prices = dict(arguments.price)
    if arguments.output == "-":
        log.write_html(sys.stdout.buffer.write, prices=prices, progress=progress)
    else:
        log.save_html(arguments.output, prices=prices, progress=progress)
    return OK


class _Progress:
    """Tells on standard error how much is done, a few times a second."""

    def __init__(self) -> None:
        self.next = 0.0

    def __call__(self, done: int, of: int) -> None:
        if done == of or time.monotonic() >= self.next:
            self.next = time.monotonic() + 0.2
            percent = 100 if of == 0 else done * 100 // of
            print(f"\r{percent:3} % of {of:,} events", end="\n" if done == of else "", file=sys.stderr, flush=True)


def _ls(arguments: argparse.Namespace) -> int:
    for header in _store(arguments.store):
        if arguments.json:
            print(json.dumps(header))
            continue
        created = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(header["createdAt"] / 1000))
        # An id may hold anything; on a terminal it is shown as one readable word.
        print(created, header["id"] if header["id"].isprintable() else ascii(header["id"]), sep="  ")
    return OK


def _export(arguments: argparse.Namespace) -> int:
    sessions, id = _find(arguments)
    text = sessions.text(id)
    if arguments.output == "-":
        sys.stdout.buffer.write(text)
        return OK
    try:
        with pathlib.Path(arguments.output).open("xb") as file:
            file.write(text)
    except FileExistsError:
        message = f"{arguments.output} exists; an export overwrites nothing: remove it or choose another name"
        raise UsageError(message, code="INVALID_ARGUMENT") from None
    return OK


def _verify(arguments: argparse.Namespace) -> int:
    sessions, id = _find(arguments)
    verdict = sessions.read(id).verdict()
    if arguments.json:
        print(json.dumps(verdict))
        return OK if verdict["isSound"] else FAULT
    print(f"{verdict['id']!a}: {verdict['events']} events can be read")
    notes: list[tuple[Any, str]] = [
        (verdict["tornBytes"], "{} bytes of an unfinished append stand at the end; opening drops them"),
        (verdict["replacedCharacters"], "{} characters were no Unicode and were replaced"),
        (", ".join(map(ascii, verdict["needsTypes"])), "opening it needs these event types registered: {}"),
        (len(verdict["closers"]), "the last turn is open: it runs, or opening appends {} events that close it"),
    ]
    for value, sentence in notes:
        if value:
            print("note: " + sentence.format(value))
    for fault in verdict["disorder"]:
        print(f"fault: event {fault['seq']}: {ascii(fault['rule'])[1:-1]}")
    print("sound" if verdict["isSound"] else "not sound: it was written by a faulty program or changed by hand")
    return OK if verdict["isSound"] else FAULT


def _repair(arguments: argparse.Namespace) -> int:
    sessions, id = _find(arguments)
    if arguments.dry_run:
        verdict = sessions.read(id).verdict()
        for event in verdict["closers"]:
            print(json.dumps(event))
        torn = f", and drop {verdict['tornBytes']} torn bytes" if verdict["tornBytes"] else ""
        print(f"would append {len(verdict['closers'])} events{torn}", file=sys.stderr)
        return OK
    print(f"appended {sessions.repair(id)} events", file=sys.stderr)
    return OK
