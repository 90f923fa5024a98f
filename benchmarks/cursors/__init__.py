"""Cursor documents: reading, comparing and fingerprinting large ones, and 100,000 mutants of small ones."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

from benchmarks.cursors.documents import mutants
from benchmarks.harness import Benchmark, Options, Row
from odi_assets.documents import Severity, compare, fingerprint, inspect, parse_olake

_STREAMS, _CHUNKS, _MUTANTS, _ROUNDS = 100_000, 800, 100_000, 5


def large_document(streams: int, step: int = 0) -> str:
    """A document of OLake with this many incremental streams; each step moves all of them forward."""
    entries = [
        {
            "stream": f"t{number}",
            "namespace": "public",
            "sync_mode": "",
            "state": {"chunks": [], "id": 1000 + number + step, "updated_at": f"2024-01-15T10:{number % 60:02}:00Z"},
        }
        for number in range(streams)
    ]
    return json.dumps({"type": "STREAM", "version": 7, "streams": entries})


def document_of_chunks(chunks: int) -> str:
    """A document of OLake with one stream whose snapshot has this many chunks left."""
    bounds = [{"min": str(number), "max": str(number + 1)} for number in range(chunks)]
    stream = {"stream": "t", "namespace": "public", "sync_mode": "", "state": {"chunks": bounds}}
    return json.dumps({"type": "STREAM", "version": 7, "streams": [stream]})


def cpu_seconds(call: Callable[[], object], rounds: int = _ROUNDS) -> float:
    """The median of the CPU time of a call."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def _parse_twice_and_compare(options: Options) -> list[Row]:
    options.say(f"{_STREAMS:,} streams parsed twice and compared, {_ROUNDS} rounds")
    before, after = large_document(_STREAMS), large_document(_STREAMS, 1)
    ours = cpu_seconds(lambda: compare(parse_olake(before), parse_olake(after)))
    plain = cpu_seconds(lambda: (json.loads(before), json.loads(after)))
    name = f"{_STREAMS:,} streams parsed twice and compared, seconds of CPU"
    return [Row(name, ours, plain, "json.loads of both", ours / plain, "ours <= 3", ours <= 3)]


def _fingerprint(options: Options) -> list[Row]:
    options.say(f"the fingerprint of {_STREAMS:,} streams, {_ROUNDS} rounds")
    text = large_document(_STREAMS)
    document = parse_olake(text)
    ours = cpu_seconds(lambda: fingerprint(document))
    plain = cpu_seconds(lambda: json.dumps(json.loads(text)))
    name = f"fingerprint of {_STREAMS:,} streams, seconds of CPU"
    return [Row(name, ours, plain, "json.loads + json.dumps", ours / plain, "ratio <= 2", ours / plain <= 2)]


def _chunks(options: Options) -> list[Row]:
    options.say(f"a snapshot of {_CHUNKS} chunks, {_ROUNDS} rounds")
    text = document_of_chunks(_CHUNKS)
    document = parse_olake(text)

    def read_and_compare() -> None:
        found = parse_olake(text)
        compare(document, found)
        fingerprint(found)

    ours = cpu_seconds(read_and_compare) * 1000
    name = f"{_CHUNKS} chunks parsed, compared and fingerprinted, milliseconds of CPU"
    return [Row(name, ours, None, "", None, "ours <= 50", ours <= 50)]


def _mutants(options: Options) -> list[Row]:
    options.say(f"{_MUTANTS:,} mutants")
    wrong = 0
    for text in mutants(_MUTANTS, options.seed):
        found = inspect(text)
        wrong += (found.document is None) is not any(one.severity is Severity.ERROR for one in found.findings)
    name = f"of {_MUTANTS:,} mutants those that end neither in findings nor in a document"
    return [Row(name, wrong, None, "", None, "ours = 0", wrong == 0)]


BENCHMARK = Benchmark(
    "cursors",
    "cursor documents of other tools: reading, comparing, fingerprints, mutants",
    {
        "compare": _parse_twice_and_compare,
        "fingerprint": _fingerprint,
        "chunks": _chunks,
        "mutants": _mutants,
    },
)
