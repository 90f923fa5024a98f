"""The sweep: a file is damaged in one way, every command is given, and what doctor names is followed to right rows."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.damage.world import Answer, World, remove

_BROKEN_DOWN = ("Traceback (most recent call last)", "this is a bug in odi_assets")
_WORD = r"[^\s,;:()`]+"
_ARGUMENT = rf"--(?:node|to-version|to-batch|from|to) {_WORD}|--[a-z-]+|'[^']*'|/{_WORD}|p(?:\.\w+)?\b|[A-Z]+\b"
_COMMAND = re.compile(
    rf"odi ((?:run|doctor|(?:state|tables|stream|system|store|checkpoint) [a-z]+)(?: (?:{_ARGUMENT}))*)"
)
"""A command as it is typed, without the words that follow it in a sentence."""
_OR = re.compile(r"[,;] or\b")
_REPAIRS = ("run", "system", *(f"state {verb}" for verb in ("recover", "rewind", "reset", "accept", "adopt")),
            "tables repair", "store rewind")  # fmt: skip
_WAYS_ON = ("→", "permissions", "from a copy")
_MOST_REMEDIES = 25


_Harm = Callable[[Path, random.Random], None]


def _empty(path: Path, draws: random.Random) -> None:
    del draws
    path.write_bytes(b"")


def _halve(path: Path, draws: random.Random) -> None:
    del draws
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])


def _flip(path: Path, draws: random.Random) -> None:
    """Change one byte of the metadata: anywhere in a text, in the last bytes of a Parquet file."""
    raw = bytearray(path.read_bytes())
    if raw:
        raw[draws.randrange(max(0, len(raw) - 8) if path.suffix == ".parquet" else 0, len(raw))] ^= 0x80
        path.write_bytes(bytes(raw))


def _fold(path: Path, draws: random.Random) -> None:
    del draws
    remove(path)
    path.mkdir()


def _lock(path: Path, draws: random.Random) -> None:
    """Make a file that cannot be opened: root may open any, and so gets a link that leads to itself."""
    del draws
    if os.geteuid():
        path.chmod(0)
        return
    remove(path)
    path.symlink_to(path.name)


def _exchange(path: Path, draws: random.Random) -> None:
    """Put another file of its kind in its place, of the same table where that has one."""
    table = next((folder for folder in path.parents if (folder / "_delta_log").is_dir()), path.parent)
    kind, raw = _kind(path.relative_to(table.parent)), path.read_bytes()
    others = [
        other
        for other in sorted(table.rglob(f"*{path.suffix}"))
        if other.is_file() and _kind(other.relative_to(table.parent)) == kind and other.read_bytes() != raw
    ]
    if others:
        path.write_bytes(draws.choice(others).read_bytes())


def _repeat(path: Path, draws: random.Random) -> None:
    """Copy a commit to the version after it."""
    del draws
    path.with_name(f"{int(path.stem) + 1:020d}.json").write_bytes(path.read_bytes())


DAMAGES: Mapping[str, _Harm] = {
    "deleted": lambda path, _: remove(path),
    "emptied": _empty,
    "cut to half": _halve,
    "one byte flipped": _flip,
    "replaced by a folder": _fold,
    "unreadable": _lock,
    "replaced by another one of its kind": _exchange,
}
LAST_COMMIT = "last commit"
LAST_COMMIT_DAMAGES: Mapping[str, _Harm] = {**DAMAGES, "copied to the next version": _repeat}


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        remove(path)


FOLDER = "folder"
"""The kind of what is no file."""
FOLDER_DAMAGES: Mapping[str, _Harm] = {
    "deleted": lambda path, _: remove(path),
    "emptied": lambda path, _: _clear(path),
}


@dataclass
class Tally:
    """Counts of one sweep.

    Attributes:
        commands: how many commands were given over damage.
        harmless: damage that no command and no row ever met.
        silent: doctor agreed, and a command stopped or rows were wrong.
        breakdowns: tracebacks, and errors that are called a bug.
        mute: stops that name no remedy.
        void: ways that a message names, and that fail or change nothing.
        dead_ends: remedies were followed, and rows are not right.
    """

    damages: int = 0
    commands: int = 0
    harmless: int = 0
    remedies: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)
    breakdowns: list[str] = field(default_factory=list)
    mute: list[str] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    dead_ends: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        return [*self.silent, *self.breakdowns, *self.mute, *self.void, *self.dead_ends]


def files_by_kind(root: Path) -> dict[str, list[str]]:
    """Every file and folder of the lake and of the local state, by what it is."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted([*(root / "lake").rglob("*"), *(root / ".odibi").rglob("*")]):
        kind = FOLDER if path.is_dir() else _kind(path.relative_to(root))
        found[kind].append(path.relative_to(root).as_posix())
    for files in list(found.values()):
        commits = [file for file in files if re.search(r"_delta_log/\d+\.json$", file)]
        by_table: dict[str, str] = {file.rpartition("/")[0]: file for file in commits}
        if commits:
            found[LAST_COMMIT] += list(by_table.values())
    return dict(found)


def _kind(path: Path) -> str:
    system = next((f"{part} " for part in path.parts if part.startswith("meta_")), "")
    if "_odi_stream" in path.parts:
        below = path.parts[path.parts.index("_odi_stream") + 1]
        deeper = " description" if below == "state" and "_metadata" in path.parts else ""
        return f"stream {below}{deeper}{' checksum' if path.suffix == '.crc' else ''}"
    if "_odi_files" in path.parts:
        return "ledger"
    if "_delta_log" in path.parts:
        return system + ("checkpoint" if "checkpoint.parquet" in path.name else
                         "_last_checkpoint" if path.name.startswith("_last") else "commit")  # fmt: skip
    if path.parts[0] == ".odibi" and not system:
        return path.name if path.parent.name == ".odibi" else path.parent.name
    return system + ("data" if path.suffix == ".parquet" else "other")


def damages_of(kind: str) -> Mapping[str, _Harm]:
    """What may happen to a file of a kind."""
    return {FOLDER: FOLDER_DAMAGES, LAST_COMMIT: LAST_COMMIT_DAMAGES}.get(kind, DAMAGES)


def drawn(root: Path, steps: int, seed: int) -> Iterator[tuple[int, str, str, str]]:
    """Damages to make: number of the draw, kind of file, file, and what happens to it. Each kind comes in turn."""
    kinds = files_by_kind(root)
    pairs = [(kind, how) for kind in sorted(kinds) for how in damages_of(kind)]
    random.Random(seed).shuffle(pairs)
    for step in range(steps):
        number = seed + step
        kind, how = pairs[step % len(pairs)]
        yield number, kind, random.Random(number).choice(kinds[kind]), how


def sweep(
    world: World, steps: Iterable[tuple[int, str, str, str]], say: Callable[[str], None], tally: Tally | None = None
) -> Tally:
    """Make each damage in the world as it was, look at it with every command, and follow the remedies.

    Args:
        tally: counts to add to.
    """
    tally = tally or Tally()
    for number, kind, file, how in steps:
        world.put_back()
        damages_of(kind)[how](world.root / file, random.Random(number))
        what = f"{world.kind}, seed {number}: {file} {how}"
        say(f"{what} ({kind}); {tally.commands:,} commands before")
        tally.damages += 1
        tally.by_kind[f"{kind}, {how}"] += 1
        before = set(tally.findings)
        try:
            _judge(world, what, file, random.Random(number), tally)
        except Exception as error:  # noqa: BLE001  a command that raises out of main is a breakdown, whatever it raised
            tally.breakdowns.append(f"{what}: {type(error).__name__}: {error}")
        for finding in set(tally.findings) - before:
            say(f"  {finding}")
    return tally


@dataclass(frozen=True)
class _Way:
    """One way on of those that a message names: commands in their order, or the file put back where there are none.

    Attributes:
        answer: the command that stopped with the message, or ``doctor``.
        finding: what doctor found, as long as it stands.
    """

    commands: tuple[str, ...]
    answer: str
    finding: tuple[str, ...]


def _judge(world: World, what: str, file: str, draws: random.Random, tally: Tally) -> None:
    seen = [_given(world, command, what, tally) for command in ("doctor --json", "doctor --deep --json")]
    agrees = not any(answer.code for answer in seen)
    stopped = []
    for command in world.looks:
        answer = _given(world, command, what, tally)
        if answer.code and agrees:
            tally.silent.append(f"{what}: doctor agrees, and `odi {command}` says {_short(answer)}")
            agrees = False
        if answer.code:
            stopped.append(answer)
    world.land()
    last = _given(world, "run", what, tally)
    if agrees:
        wrong = [] if last.code else world.wrong()
        if last.code or wrong:
            tally.silent.append(
                f"{what}: doctor agrees, and the next run {_short(last) if last.code else f'left {wrong} wrong'}"
            )
        else:
            tally.harmless += 1
            return
    _try_each(world, what, file, [*stopped, last] if last.code else stopped, draws, tally)


def _try_each(
    world: World, what: str, file: str, stopped: Iterable[Answer], draws: random.Random, tally: Tally
) -> None:
    """Go each way that is named, each from the world as it is now: it does something, and leads to right rows."""
    back = world.keep()
    ways = {way.commands: way for way in _ways(world, stopped)}
    for way in ways.values():
        back()
        _go(world, what, file, way, tally)
        # An acceptance gives rows up on purpose.
        if not any(command.startswith("state accept") for command in way.commands):
            _follow(world, what, file, list(way.commands), draws, tally)
    if not ways:
        _follow(world, what, file, [], draws, tally)


def _ways(world: World, stopped: Iterable[Answer]) -> Iterator[_Way]:
    for answer in stopped:
        for line in answer.text.split("→")[1:]:
            yield from _split(line.split("\n\n")[0], answer.command, ())
    for one in _findings(world):
        yield from _split(one["remedy"], "doctor", _identity(one))


def _split(text: str, answer: str, finding: tuple[str, ...]) -> Iterator[_Way]:
    for part in _OR.split(text) if "may yet write it" not in text else ():
        commands = tuple(found[1] for found in _COMMAND.finditer(part) if found[1].startswith(_REPAIRS))
        if commands:
            yield _Way(commands, answer, finding)
        elif _puts_back(part):
            yield _Way((), answer, finding)


def _puts_back(text: str) -> bool:
    return any(words in text for words in ("permissions", "from a copy", "put them back"))


def _go(world: World, what: str, file: str, way: _Way, tally: Tally) -> None:
    """Do what a message says, word by word: each command succeeds, and what it was named for is gone."""
    tally.remedies += len(way.commands) or 1
    if not way.commands:
        world.put_back_file(file)
    for command in way.commands:
        answer = (
            _chosen(world, command, what, tally)
            if "--list" in command
            else _given(world, _confirmed(command), what, tally)
        )
        if answer.code:
            tally.void.append(f"{what}: `odi {command}`, named by {way.answer}: {_short(answer)}")
    if way.finding and way.finding in map(_identity, _findings(world)):
        named = " and ".join(f"`odi {command}`" for command in way.commands) or "to put the file back"
        tally.void.append(f"{what}: {named}, named by {way.answer}, leaves {way.finding} as it was")


def _findings(world: World) -> list[dict[str, str]]:
    printed = world.odi("doctor --deep --json").out
    return [one for one in json.loads(printed or "[]") if one["kind"] != "not looked at"]


def _identity(finding: Mapping[str, str | None]) -> tuple[str, ...]:
    return tuple(str(finding[name]) for name in ("node", "kind", "message"))


def _confirmed(command: str) -> str:
    asks = command.startswith(("tables", "state rewind", "state reset", "state accept"))
    return f"{command} --yes" if asks and "--yes" not in command else command


def _given(world: World, command: str, what: str, tally: Tally) -> Answer:
    answer = world.odi(command)
    tally.commands += 1
    if any(text in answer.text for text in _BROKEN_DOWN):
        tally.breakdowns.append(f"{what}: odi {command}: {_short(answer)}")
    elif answer.code and not any(text in answer.text for text in _WAYS_ON) and not _COMMAND.search(answer.text):
        tally.mute.append(f"{what}: odi {command}: {_short(answer)}")
    return answer


def _follow(world: World, what: str, file: str, done: list[str], draws: random.Random, tally: Tally) -> None:
    """Do what doctor names until it is content, then what a run names until it succeeds.

    Args:
        done: what was done already.
    """
    texts: list[str] = []
    last = None
    for _ in range(_MOST_REMEDIES):
        doctor = _given(world, "doctor --deep --json", what, tally)
        found = [one for one in json.loads(doctor.out or "[]") if one["kind"] != "not looked at"]
        # A row of history that is lost comes back a quarter of an hour after its commit.
        texts = [one["remedy"] for one in found if "may yet write it" not in one["remedy"]]
        if not found and doctor.code:
            texts = [doctor.err]
        if not texts:
            last = _given(world, "run", what, tally)
            if not last.code:
                break
            texts = [last.text]
        if any(_obeyed(world, text, what, done, draws, tally) for text in texts):
            continue
        if file in done or not any(map(_puts_back, texts)):
            break
        done.append(file)
        world.put_back_file(file)
    try:
        wrong = world.wrong()
    except Exception as error:  # noqa: BLE001  whatever keeps the rows from being read is the finding
        wrong = [f"{type(error).__name__}: {str(error).splitlines()[0]}"]
    if wrong or last is None or last.code:
        ended = _short(last) if last is not None else "no run"
        tally.dead_ends.append(f"{what}: after {done}: wrong: {wrong}; {ended}; doctor: {texts}")


def _obeyed(world: World, text: str, what: str, done: list[str], draws: random.Random, tally: Tally) -> bool:
    """Whether one of the commands that a text names, and was not yet given twice, was given."""
    commands = [found[1] for found in _COMMAND.finditer(text)]
    # Each command that is named has to lead on, not the first alone.
    for command in draws.sample(distinct := [*dict.fromkeys(commands)], len(distinct)):
        # What an acceptance gives up on purpose is not what is judged here; a listing repairs nothing.
        if not command.startswith(_REPAIRS) or command.startswith("state accept") or done.count(command) >= 2:
            continue
        done.append(command)
        tally.remedies += 1
        if "--list" in command:
            _chosen(world, command, what, tally)
        else:
            _given(world, _confirmed(command), what, tally)
        return True
    return False


def _chosen(world: World, command: str, what: str, tally: Tally) -> Answer:
    """A rewind to the newest version of a list, but the last one, that can be gone to."""
    answer = _given(world, f"{command} --json", what, tally)
    for one in [] if answer.code else json.loads(answer.out)[1:]:
        chosen = command.replace("--list", f"--to-version {one['version']} --yes")
        answer = _given(world, chosen, what, tally)
        if not answer.code:
            return answer
    return answer if answer.code else Answer(command, 1, "it lists no version to go to", "")


def _short(answer: Answer) -> str:
    lines = [line for line in answer.text.splitlines() if line.strip()]
    return f"exit {answer.code}: {' | '.join(lines[-3:])[:300]}"
