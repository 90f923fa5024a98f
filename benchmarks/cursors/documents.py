"""Documents of the shapes that the tools write, and mutants of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

OFFSET = json.dumps({"transaction_id": None, "lsn": 87943976, "txId": 491, "ts_usec": 1706700000000000})
DOCUMENTS: dict[str, str] = {
    "olake mongodb": (
        '{"type":"STREAM","streams":[{"stream":"orders","namespace":"shop","sync_mode":"cdc","state":{"_d'
        'ata":"8267B34D61000000022B0429296E1404"}}]}'
    ),
    "olake postgres": (
        '{"type":"GLOBAL","version":1,"global":{"state":{"lsn":"16/B374D848"},"streams":["public.orders"]'
        '},"streams":[{"stream":"orders","namespace":"public","sync_mode":"","state":{"chunks":[]}}]}'
    ),
    "olake mysql": (
        '{"type":"STREAM","version":7,"global":{"state":{"server_id":7000,"state":{"position":{"Name":"my'
        'sql-bin.000046","Pos":35853}}},"streams":[]},"streams":[{"stream":"trips","namespace":"bench","s'
        'ync_mode":"","state":{"chunks":[{"min":"1","max":"500001"},{"min":"500001","max":null}]}}]}'
    ),
    "olake mysql, as documented": (
        '{"type":"STREAM","streams":[{"stream":"orders","namespace":"shop","sync_mode":"cdc","state":{"bi'
        'nlog_file":"mysql-bin.000003","binlog_position":1027,"server_id":1000,"chunks":[]}}]}'
    ),
    "olake incremental": (
        '{\n  "type": "STREAM",\n  "version": 7,\n  "owner": "ops",\n  "streams": [\n    {"stream": "items", "'
        'namespace": "public", "sync_mode": "", "state": {"chunks": [], "id": 1002, "updated_at": "2024-0'
        '1-15T10:30:00.5Z", "price": 12.50}}\n  ]\n}\n'
    ),
    "airbyte message": (
        '{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"orders","namespa'
        'ce":"public"},"stream_state":{"version":2,"state_type":"cursor_based","cursor_field":["id"],"cur'
        'sor":"5"}}}}'
    ),
    "airbyte states": (
        '[{"type":"STREAM","stream":{"stream_descriptor":{"name":"commits"},"stream_state":{"org/repo":{"'
        'main":{"created_at":"2024-03-15T11:13:55Z"}}}}}]'
    ),
    "airbyte global": json.dumps(
        {
            "type": "GLOBAL",
            "global": {
                "shared_state": {"state": {'["postgres",{"server":"postgres"}]': OFFSET}},
                "stream_states": [{"stream_descriptor": {"name": "a", "namespace": "public"}, "stream_state": {}}],
            },
        }
    ),
    "airbyte export": (
        '{"stateType":"stream","connectionId":"046b6c7f","streamState":[{"streamDescriptor":{"name":"user'
        's"},"streamState":{"states":[{"partition":{"repo":"x"},"cursor":{"at":"2024-01-01"}}]}}]}'
    ),
    "airbyte legacy": '{"type":"LEGACY","data":{"orders":{"updated_at":"2024-01-01"}}}',
    "airbyte messages": (
        '{"type":"RECORD","record":{"stream":"a","data":{}}}\n{"type":"STATE","state":{"type":"STREAM","st'
        'ream":{"stream_descriptor":{"name":"a"},"stream_state":{"id":7}}}}\n'
    ),
    "singer": (
        '{"bookmarks":{"public-orders":{"last_replication_method":"LOG_BASED","lsn":108240872,"version":1'
        '570922723596,"xmin":null},"public-city":{"replication_key":"id","version":1,"replication_key_val'
        'ue":4079}},"currently_syncing":null}'
    ),
    "singer mysql": (
        '{"type":"STATE","value":{"bookmarks":{"shop-orders":{"log_file":"mysql-bin.000004","log_pos":324'
        '4,"version":1},"shop-big":{"max_pk_values":{"id":900},"last_pk_fetched":{"id":55},"version":2}}}'
        "}"
    ),
    "meltano": (
        '{"completed":{"singer_state":{"bookmarks":{"issues":{"partitions":[{"context":{"repo":"a"},"repl'
        'ication_key":"at","replication_key_value":"2023-05-19"}]}}}},"partial":{}}'
    ),
    "dlt": (
        '{"_state_version":3,"_state_engine_version":4,"pipeline_name":"shop","sources":{"shop":{"resourc'
        'es":{"orders":{"incremental":{"updated_at":{"initial_value":null,"last_value":"\uf0272024-01-02T00:00'
        ':00+00:00","unique_hashes":["Tp44cKMYfAuJ"],"start_value":null}}}}}},"_local":{"first_run":false'
        '},"_version_hash":"i72uCygaegAXe0Yx"}'
    ),
}

_BITS = ("{", "}", "[", "]", ",", ":", '"', "\\", "null", "true", "NaN", "-", "0", "9" * 30, "1e999", "\x00", "\ufeff")
_BITS += ("/*", "#", "\ud800", "é", "\n", " ", "'", "0/", ".", "[" * 70, '{"a":' * 70)
_NAMES = ("chunk", "Streams", "LSN", "bookmarks", "global", "stream")
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**70, 1.5, "", "x", "0/0", "0/FFFFFFFF", "NaN", "8" * 50, "\ud800", "\uf027x"),
    *([], {}, [None], [[]], {"": None}, {"lsn": ""}, {"state": {}}, [{"min": 1}], {"type": "STATE"}),
    *("GLOBAL", "STREAM", "LEGACY"),
)


def mutants(number: int, seed: int = 2013) -> Iterator[str]:
    """So many documents that are nearly right: with other values, members gone or twice, or other characters."""
    draw = random.Random(seed)
    texts = list(DOCUMENTS.values())
    for _ in range(number):
        text = draw.choice(texts)
        if draw.random() < 0.5 and "}\n{" not in text:
            value = json.loads(text)
            for _ in range(draw.randint(1, 3)):
                value = _changed(value, draw)
            text = json.dumps(value, ensure_ascii=draw.random() < 0.5)
        if draw.random() < 0.7:
            for _ in range(draw.randint(1, 3)):
                text = _edited(text, draw)
        yield text


def _edited(text: str, draw: random.Random) -> str:
    at = draw.randint(0, len(text))
    kind = draw.random()
    if kind < 0.3:
        return text[:at]
    if kind < 0.6:
        return text[:at] + draw.choice(_BITS) + text[at:]
    if kind < 0.8:
        return text[:at] + text[at + draw.randint(1, 9) :]
    other = draw.randint(0, len(text))
    return text[:at] + text[min(at, other) : max(at, other)] + text[at:]


def _changed(value: Any, draw: random.Random) -> Any:
    """The value with one of its parts replaced, removed, doubled or renamed."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        key = draw.choice(list(value))
        kind = draw.random()
        if kind < 0.6:
            return {**value, key: _changed(value[key], draw)}
        if kind < 0.75:
            return {name: one for name, one in value.items() if name != key}
        other = draw.choice(
            ("chunk", "Streams", "LSN", key.upper(), key[:-1], key + "s", "bookmarks", "global", "stream")
        )
        return {(other if name == key else name): one for name, one in value.items()}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        if draw.random() < 0.7:
            return [*value[:at], _changed(value[at], draw), *value[at + 1 :]]
        return value[:at] + [value[at]] * draw.choice((0, 2)) + value[at + 1 :]
    return draw.choice(_VALUES)
