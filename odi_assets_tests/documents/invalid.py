"""Documents with something wrong in them, and what has to be said of each: all of it, and nothing else."""

from __future__ import annotations

ONE = '{"type":"STREAM","streams":[{"stream":"t","namespace":"n","state":%s}]}'
G = '{"type":"GLOBAL","global":%s,"streams":[]}'
A = '{"type":"STREAM","stream":%s}'
S = '{"bookmarks":{"s":%s}}'
D = '{"_state_version":1,"_state_engine_version":4,"pipeline_name":"p","sources":%s}'

Expected = tuple[int, int, str, str, str]
"""Line, column, key, severity, and how the message begins."""

INVALID: tuple[tuple[str, str | None, tuple[Expected, ...]], ...] = (
    ("", None, ((1, 1, "", "error", "this is not JSON: it holds nothing; all position"),)),
    ("   \n", None, ((2, 1, "", "error", "this is not JSON: it holds nothing; all position"),)),
    ("\0\0\0", None, ((1, 4, "", "error", "this is not JSON: it holds nothing; all position"),)),
    (
        '{"type":"STREAM","streams":[{"stre',
        None,
        ((1, 35, "", "error", "this is not JSON: it ends within a text; all pos"),),
    ),
    ('{"type":"STREAM","streams":[', None, ((1, 29, "", "error", "this is not JSON: it ends before its last `]`; a"),)),
    ('{"type":"STREAM"', None, ((1, 17, "", "error", "this is not JSON: it ends before its last `}`; a"),)),
    ('{"type":tru', None, ((1, 12, "", "error", "this is not JSON: it ends within a value; all po"),)),
    (
        '\ufeff{"type":"STREAM","streams":[]}',
        None,
        ((1, 1, "", "error", "this is not JSON: it begins with a byte order ma"),),
    ),
    (
        '{"type":"STREAM", // first\n "streams":[]}',
        None,
        ((1, 19, "type", "error", "this is not JSON: it has no comments"),),
    ),
    (
        '{"type":"STREAM",/* x */"streams":[]}',
        None,
        ((1, 18, "type", "error", "this is not JSON: it has no comments"),),
    ),
    ('# state\n{"type":"STREAM","streams":[]}', None, ((1, 1, "", "error", "this is not JSON: it has no comments"),)),
    (ONE % '{"id":NaN}', None, ((1, 73, "streams[0].state.id", "error", "NaN is not a number that JSON has"),)),
    (
        ONE % '{"id":-Infinity}',
        None,
        ((1, 73, "streams[0].state.id", "error", "-Infinity is not a number that JSON has"),),
    ),
    (ONE % '{"id":01}', None, ((1, 73, "streams[0].state.id", "error", "01 is not a number that JSON has"),)),
    (ONE % '{"id":+1}', None, ((1, 73, "streams[0].state.id", "error", "+1 is not a number that JSON has"),)),
    (ONE % '{"id":0x10}', None, ((1, 73, "streams[0].state.id", "error", "0x10 is not a number that JSON has"),)),
    (
        ONE % '{"id":1e99999999999999999999}',
        None,
        ((1, 73, "streams[0].state.id", "error", "1e99999999999999999999 is not a number that can"),),
    ),
    (
        ONE % ('{"id":%s}' % ("9" * 5000)),
        None,
        ((1, 73, "streams[0].state.id", "error", "9999999999999999999999999999999999999999… (5000"),),
    ),
    (
        '{"type":"STREAM","streams":[]} x',
        None,
        ((1, 32, "", "error", "this is not JSON: there is more after its end"),),
    ),
    (
        '{"type":"STREAM","streams":[]}\0\0',
        None,
        ((1, 31, "", "error", "this is not JSON: zero bytes follow its end"),),
    ),
    (
        '{"type":"STREAM","streams":[]}{"a":1}',
        None,
        ((1, 31, "", "error", "this is not JSON: there is more after its end"),),
    ),
    (
        '{"type":"STREAM","type":"GLOBAL","streams":[]}',
        None,
        (
            (1, 1, "global", "error", "is missing, and a document of type GLOBAL keeps"),
            (1, 18, "type", "error", "the key `type` is given more than once"),
        ),
    ),
    (ONE % '{"id":1,"id":2}', None, ((1, 75, "streams[0].state.id", "error", "the key `id` is given more than once"),)),
    (
        '{"type":"STREAM","streams":[],}',
        None,
        ((1, 31, "streams", "error", "this is not JSON: a comma stands before `}`"),),
    ),
    ('{"type":"STREAM" "streams":[]}', None, ((1, 18, "type", "error", "this is not JSON: a comma is missing here"),)),
    ("{'type':'STREAM'}", None, ((1, 2, "", "error", "this is not JSON: a key in double quotes should"),)),
    ('{type:"STREAM","streams":[]}', None, ((1, 2, "", "error", "this is not JSON: a key in double quotes should"),)),
    (
        ONE % '{"a":"\n"}',
        None,
        ((1, 73, "streams[0].state.a", "error", "this is not JSON: a control character in a text"),),
    ),
    (
        ONE % '{"a":"\\x"}',
        None,
        ((1, 73, "streams[0].state.a", "error", "this is not JSON: a backslash that escapes nothi"),),
    ),
    (
        ONE % '{"a":True,"b":None}',
        None,
        (
            (1, 72, "streams[0].state.a", "error", "this is not JSON: `True`"),
            (1, 81, "streams[0].state.b", "error", "this is not JSON: `None`"),
        ),
    ),
    (
        '{"type":"STREAM","streams":[' + "[" * 70 + "]" * 70 + "]}",
        None,
        (
            (
                1,
                91,
                "streams[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]",
                "error",
                "nested more than 64 levels deep",
            ),
        ),
    ),
    ("null", None, ((1, 1, "", "error", "this is no cursor document that is known: neithe"),)),
    ("[]", None, ((1, 1, "", "error", "this is no cursor document that is known: neithe"),)),
    ("7", None, ((1, 1, "", "error", "this is no cursor document that is known: neithe"),)),
    ('"x"', None, ((1, 1, "", "error", "this is no cursor document that is known: neithe"),)),
    ("{}", None, ((1, 1, "", "error", "an empty object may be any tool's"),)),
    ("[]", "OLake", ((1, 1, "", "error", "must be an object, but is a list"),)),
    ('{"type":"GLOBAL"}', None, ((1, 1, "global", "error", "is missing, and a document of type GLOBAL keeps"),)),
    (
        '{"type":"GLOBAL","global":null,"streams":[]}',
        None,
        ((1, 27, "global", "error", "is null, and a document of type GLOBAL keeps its"),),
    ),
    (
        '{"type":"STREAM","global":null,"streams":[]}',
        None,
        ((1, 27, "global", "warning", "is null, where OLake writes no `global` at all"),),
    ),
    (
        '{"type":"stream","streams":[]}',
        None,
        ((1, 9, "type", "error", "must be one of GLOBAL, MIXED, STREAM, but is 'st"),),
    ),
    ('{"type":7,"streams":[]}', None, ((1, 9, "type", "error", "must be one of GLOBAL, MIXED, STREAM, but is a n"),)),
    ('{"streams":[]}', None, ((1, 1, "type", "error", "is missing"),)),
    (
        '{"type":"LEGACY","streams":[]}',
        None,
        ((1, 9, "type", "error", "must be one of GLOBAL, MIXED, STREAM, but is 'LE"),),
    ),
    (
        '{"type":"STREAM","version":"1","streams":[]}',
        None,
        ((1, 28, "version", "error", "must be a whole number, 0 or more, but is a text"),),
    ),
    (
        '{"type":"STREAM","version":-1,"streams":[]}',
        None,
        ((1, 28, "version", "error", "must be a whole number, 0 or more, but is -1"),),
    ),
    (
        '{"type":"STREAM","version":8,"streams":[]}',
        None,
        ((1, 28, "version", "error", "is 8, a version of the future: OLake 0.9.4 writes"),),
    ),
    (
        '{"type":"STREAM","version":7.5,"streams":[]}',
        None,
        ((1, 28, "version", "error", "must be a whole number, 0 or more, but is a numb"),),
    ),
    (G % "[]", None, ((1, 27, "global", "error", "must be an object, but is a list"),)),
    (G % '{"state":7,"streams":[]}', None, ((1, 36, "global.state", "error", "must be an object, but is a number"),)),
    (
        G % '{"state":{"lsn":""},"streams":[]}',
        None,
        ((1, 43, "global.state.lsn", "error", "must be a log sequence number such as 0/198C935,"),),
    ),
    (
        G % '{"state":{"lsn":null},"streams":[]}',
        None,
        ((1, 43, "global.state.lsn", "error", "must be a log sequence number such as 0/198C935,"),),
    ),
    (
        G % '{"state":{"LSN":"0/1"},"streams":[]}',
        None,
        ((1, 37, "global.state.LSN", "error", "is not a key of OLake; `lsn` is, and it is missi"),),
    ),
    (
        G % '{"state":{"lsn":"0-1"},"streams":[]}',
        None,
        ((1, 43, "global.state.lsn", "error", "must be a log sequence number such as 0/198C935,"),),
    ),
    (
        G % '{"state":{"lsn":"0/123456789"},"streams":[]}',
        None,
        ((1, 43, "global.state.lsn", "error", "must be a log sequence number such as 0/198C935,"),),
    ),
    (
        G % '{"state":{"lsn":12},"streams":[]}',
        None,
        ((1, 43, "global.state.lsn", "error", "must be a log sequence number such as 0/198C935,"),),
    ),
    (
        G % '{"state":{"lsn":"0/0"},"streams":[]}',
        None,
        ((1, 43, "global.state.lsn", "warning", "is 0/0, which is no position of any log"),),
    ),
    (
        G % '{"state":{},"streams":[]}',
        None,
        ((1, 36, "global.state", "warning", "is missing or empty: no stream has a log positio"),),
    ),
    (
        G % '{"state":{"lsn":"0/1"}}',
        None,
        ((1, 27, "global.streams", "warning", "is missing: OLake does not know whose snapshots"),),
    ),
    (
        G % '{"state":{"lsn":"0/1"},"streams":"a.b"}',
        None,
        ((1, 60, "global.streams", "error", "must be a list, but is a text"),),
    ),
    (
        G % '{"state":{"lsn":"0/1"},"streams":["a.b",null]}',
        None,
        ((1, 67, "global.streams[1]", "error", "must be a text, but is null"),),
    ),
    (
        G % '{"state":{"lsn":"0/1"},"streams":["a.b",""]}',
        None,
        ((1, 67, "global.streams[1]", "error", "must be a text, but is empty"),),
    ),
    (
        G % '{"state":{"lsn":"0/1"},"streams":["a.b","a.b"]}',
        None,
        ((1, 67, "global.streams[1]", "warning", "the stream a.b is listed more than once"),),
    ),
    (
        G % '{"stat":{"lsn":"0/1"},"streams":[]}',
        None,
        (
            (1, 27, "global.state", "warning", "is missing or empty: no stream has a log positio"),
            (1, 28, "global.stat", "error", "is not a key of OLake; `state` is, and it is mis"),
        ),
    ),
    (
        G % '{"state":{"server_id":-5,"state":{"position":{"Name":"b.000001","Pos":4}}},"streams":[]}',
        None,
        ((1, 49, "global.state.server_id", "error", "must be a whole number of 1 to 4294967295, but i"),),
    ),
    (
        G % '{"state":{"server_id":"7","state":{"position":{"Name":"b.000001","Pos":4}}},"streams":[]}',
        None,
        ((1, 49, "global.state.server_id", "error", "must be a whole number of 1 to 4294967295, but i"),),
    ),
    (
        G % '{"state":{"state":{"position":{"Name":"b.000001","Pos":4}}},"streams":[]}',
        None,
        ((1, 36, "global.state.server_id", "error", "is missing, and without it OLake stops: “invalid"),),
    ),
    (
        G % '{"state":{"server_id":1,"state":{"position":{"Name":"b","Pos":4}}},"streams":[]}',
        None,
        ((1, 71, "global.state.state.position", "error", "is not a MySQL binary log position: that is a fi"),),
    ),
    (
        G % '{"state":{"server_id":1,"state":{"position":{"Name":"b.000001","Pos":-1}}},"streams":[]}',
        None,
        ((1, 71, "global.state.state.position", "error", "is not a MySQL binary log position: that is a fi"),),
    ),
    (
        G % '{"state":{"server_id":99999999999,"state":{"position":{"Name":"b.000001","Pos":4}}},"streams":[]}',
        None,
        ((1, 49, "global.state.server_id", "error", "must be a whole number of 1 to 4294967295, but i"),),
    ),
    (
        '{"type":"GLOBAL","global":{"state":{"lsn":"0/1"},"streams":["n.t"]},"streams":[{"stream":"t","namespace":"n","state":{"chunks":[{"min":"1","max":"2"}]}}]}',
        None,
        ((1, 128, "streams[0].state.chunks", "error", "has 1 chunks left, and `global.streams` lists n."),),
    ),
    (
        '{"type":"STREAM","global":{"state":{"lsn":"0/1"},"streams":["n.t"]},"streams":[{"stream":"t","namespace":"n","state":{"chunks":[{"min":"1","max":"2"}]}}]}',
        None,
        ((1, 128, "streams[0].state.chunks", "warning", "has 1 chunks left, and `global.streams` lists n."),),
    ),
    (
        '{"type":"STREAM","streams":null}',
        None,
        ((1, 28, "streams", "warning", "is null: OLake has no position of any stream"),),
    ),
    (
        '{"type":"STREAM","streams":[null]}',
        None,
        ((1, 29, "streams[0]", "error", "must be an object, but is null, on which OLake f"),),
    ),
    ('{"type":"STREAM","streams":{}}', None, ((1, 28, "streams", "error", "must be a list, but is an object"),)),
    (
        '{"type":"STREAM","Streams":[]}',
        "OLake",
        ((1, 18, "Streams", "error", "is not a key of OLake; `streams` is, and it is m"),),
    ),
    (
        '{"type":"STREAM","version":1,"strems":[]}',
        None,
        ((1, 30, "strems", "error", "is not a key of OLake; `streams` is, and it is m"),),
    ),
    (
        '{"type":"STREAM","streams":[7]}',
        None,
        ((1, 29, "streams[0]", "error", "must be an object, but is a number, on which OLa"),),
    ),
    (
        '{"type":"STREAM","streams":[{"namespace":"n","state":{}}]}',
        None,
        ((1, 29, "streams[0].stream", "error", "is missing or empty"),),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":"","state":{}}]}',
        None,
        ((1, 39, "streams[0].stream", "error", "is missing or empty"),),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":7,"state":{}}]}',
        None,
        ((1, 39, "streams[0].stream", "error", "must be a text, but is a number"),),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":"t","namespace":[],"state":{}}]}',
        None,
        ((1, 55, "streams[0].namespace", "error", "must be a text, but is a list"),),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":"t","sync_mode":"cdcc","state":{}}]}',
        None,
        ((1, 55, "streams[0].sync_mode", "error", "must be one of cdc, full_refresh, incremental, s"),),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":"t","sync_mode":"CDC","state":{}}]}',
        None,
        ((1, 55, "streams[0].sync_mode", "error", "must be one of cdc, full_refresh, incremental, s"),),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":"t","sync_mode":1,"state":{}}]}',
        None,
        ((1, 55, "streams[0].sync_mode", "error", "must be a text, but is a number"),),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":"t"}]}',
        None,
        ((1, 29, "streams[0].state", "error", "is missing: OLake would read the stream from its"),),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":"t","state":null}]}',
        None,
        ((1, 51, "streams[0].state", "error", "must be an object, but is null: OLake would read"),),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":"t","state":[]}]}',
        None,
        ((1, 51, "streams[0].state", "error", "must be an object, but is a list: OLake would re"),),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":"t","State":{}}]}',
        None,
        (
            (1, 29, "streams[0].state", "error", "is missing: OLake would read the stream from its"),
            (1, 43, "streams[0].State", "error", "is not a key of OLake; `state` is, and it is mis"),
        ),
    ),
    (
        '{"type":"STREAM","streams":[{"stream":"t","state":{}},\n{"stream":"t","state":{}}]}',
        None,
        ((2, 1, "streams[1]", "error", "the stream t is given more than once"),),
    ),
    (
        ONE % '{"chunks":{}}',
        None,
        ((1, 77, "streams[0].state.chunks", "error", "must be a list, but is an object: OLake takes th"),),
    ),
    (
        ONE % '{"chunks":null}',
        None,
        ((1, 77, "streams[0].state.chunks", "error", "must be a list, but is null: OLake takes that fo"),),
    ),
    (
        ONE % '{"chunks":"none"}',
        None,
        ((1, 77, "streams[0].state.chunks", "error", "must be a list, but is a text: OLake takes that"),),
    ),
    (
        ONE % '{"Chunks":[]}',
        None,
        ((1, 68, "streams[0].state.Chunks", "error", "looks like `chunks` mistyped, and OLake takes it"),),
    ),
    (
        ONE % '{"chunks":[7]}',
        None,
        ((1, 78, "streams[0].state.chunks[0]", "error", "must be an object with min and max, but is a num"),),
    ),
    (
        ONE % '{"chunks":[{"min":1}]}',
        None,
        ((1, 78, "streams[0].state.chunks[0]", "error", "has no max: OLake reads on without that bound"),),
    ),
    (
        ONE % '{"chunks":[{}]}',
        None,
        ((1, 78, "streams[0].state.chunks[0]", "error", "has no min and no max: OLake reads on without th"),),
    ),
    (
        ONE % '{"chunks":[{"min":"1","max":"2"},{"max":"2","min":"1"}]}',
        None,
        ((1, 100, "streams[0].state.chunks[1]", "warning", "is the same chunk as one before it"),),
    ),
    (
        ONE % '{"chunks":[{"min":1,"max":20},{"min":10,"max":30}]}',
        None,
        (
            (
                1,
                97,
                "streams[0].state.chunks[1]",
                "warning",
                "overlaps chunks[0]: OLake reads the rows that are in b",
            ),
        ),
    ),
    (
        ONE % '{"chunks":[{"min":"30","max":null},{"min":"9","max":"10"},{"min":null,"max":"10"}]}',
        None,
        ((1, 102, "streams[0].state.chunks[1]", "warning", "overlaps chunks[2]: OLake reads the rows that are in b"),),
    ),
    (
        ONE % '{"chunks":[{"min":"10","max":"9"}]}',
        None,
        ((1, 78, "streams[0].state.chunks[0]", "warning", "holds nothing: its max is not above its min"),),
    ),
    (
        ONE % '{"_data":"826"}',
        None,
        ((1, 76, "streams[0].state._data", "error", "must be a MongoDB resume token, hexadecimal digi"),),
    ),
    (
        ONE % '{"_data":""}',
        None,
        ((1, 76, "streams[0].state._data", "error", "must be a MongoDB resume token, hexadecimal digi"),),
    ),
    (
        ONE % '{"_data":12}',
        None,
        ((1, 76, "streams[0].state._data", "error", "must be a MongoDB resume token, hexadecimal digi"),),
    ),
    (
        ONE % '{"_data":null}',
        None,
        ((1, 76, "streams[0].state._data", "warning", "is null, so the stream has no position in its lo"),),
    ),
    (
        ONE % '{"_Data":"8264"}',
        None,
        ((1, 68, "streams[0].state._Data", "error", "looks like `_data` mistyped, and OLake takes it"),),
    ),
    (
        ONE % '{"resume_token":{"_data":"xyz"}}',
        None,
        ((1, 92, "streams[0].state.resume_token._data", "error", "must be a MongoDB resume token, hexadecimal digi"),),
    ),
    (
        ONE % '{"binlog_file":"mysql-bin","binlog_position":4}',
        None,
        ((1, 67, "streams[0].state", "error", "is not a MySQL binary log position: that is a fi"),),
    ),
    (
        ONE % '{"binlog_file":"b.000001","binlog_position":-4}',
        None,
        ((1, 67, "streams[0].state", "error", "is not a MySQL binary log position: that is a fi"),),
    ),
    (
        ONE % '{"binlog_file":"b.000001","binlog_position":-4,"server_id":-1}',
        None,
        (
            (1, 67, "streams[0].state", "error", "is not a MySQL binary log position: that is a fi"),
            (1, 126, "streams[0].state.server_id", "error", "must be a whole number of 1 to 4294967295, but i"),
        ),
    ),
    (
        G % '{"state":{"state":{"position":{"Name":"b","Pos":4}}},"streams":[]}',
        None,
        (
            (1, 36, "global.state.server_id", "error", "is missing, and without it OLake stops: “invalid"),
            (1, 57, "global.state.state.position", "error", "is not a MySQL binary log position: that is a fi"),
        ),
    ),
    (
        ONE % '{"binlog_file":"b.000001"}',
        None,
        ((1, 67, "streams[0].state", "error", "is not a MySQL binary log position: that is a fi"),),
    ),
    (
        ONE % '{"binlog_file":"b.000001","binlog_position":4,"server_id":-1}',
        None,
        ((1, 125, "streams[0].state.server_id", "error", "must be a whole number of 1 to 4294967295, but i"),),
    ),
    (
        ONE % '{"id":9007199254740993}',
        None,
        ((1, 73, "streams[0].state.id", "warning", "is above 2^53: OLake reads it back rounded, and"),),
    ),
    (
        ONE % '{"lsn":""}',
        None,
        ((1, 74, "streams[0].state.lsn", "error", "must be a log sequence number such as 0/198C935,"),),
    ),
    (
        A % '{"stream_descriptor":{"name":"a"},"stream_state":{}}',
        "OLake",
        ((1, 1, "", "error", "this is a document of Airbyte, not of OLake"),),
    ),
    (
        A % '{"stream_descriptor":{},"stream_state":{}}',
        None,
        ((1, 48, "stream.stream_descriptor.name", "error", "is missing or empty"),),
    ),
    (
        A % '{"stream_descriptor":{"name":7},"stream_state":{}}',
        None,
        ((1, 56, "stream.stream_descriptor.name", "error", "must be a text, but is a number"),),
    ),
    (
        A % '{"stream_descriptor":{"name":"a","namespace":7},"stream_state":{}}',
        None,
        ((1, 72, "stream.stream_descriptor.namespace", "error", "must be a text, but is a number"),),
    ),
    (A % '{"stream_state":{}}', None, ((1, 27, "stream.stream_descriptor", "error", "is missing"),)),
    (
        A % '{"stream_descriptor":[],"stream_state":{}}',
        None,
        ((1, 48, "stream.stream_descriptor", "error", "must be an object, but is a list"),),
    ),
    (
        A % '{"stream_descriptor":{"name":"a"},"stream_state":[]}',
        None,
        ((1, 76, "stream.stream_state", "error", "must be an object, but is a list"),),
    ),
    (
        A % '{"stream_descriptor":{"name":"a"},"stream_state":null}',
        None,
        ((1, 76, "stream.stream_state", "warning", "is missing or null: Airbyte reads the stream fro"),),
    ),
    (
        A % '{"stream_descriptor":{"name":"a"},"stream_stat":{}}',
        None,
        (
            (1, 27, "stream.stream_state", "warning", "is missing or null: Airbyte reads the stream fro"),
            (1, 61, "stream.stream_stat", "error", "is not a key of Airbyte; `stream_state` is, and"),
        ),
    ),
    (
        '{"type":"STREAMS","stream":{"stream_descriptor":{"name":"a"},"stream_state":{}}}',
        None,
        ((1, 9, "type", "error", "must be one of GLOBAL, LEGACY, STREAM, but is 'S"),),
    ),
    (
        '{"type":"GLOBAL","stream":{"stream_descriptor":{"name":"a"},"stream_state":{}}}',
        None,
        (
            (1, 1, "global", "error", "is missing, and a state of type GLOBAL is kept t"),
            (1, 18, "stream", "error", "is given beside a type of GLOBAL, which keeps it"),
        ),
    ),
    (
        '{"type":"GLOBAL","global":{"shared_state":{}}}',
        None,
        (
            (1, 27, "global.stream_states", "error", "is missing"),
            (1, 43, "global.shared_state", "warning", "is missing or empty: no stream has a log positio"),
        ),
    ),
    (
        '{"type":"GLOBAL","global":{"stream_states":{}}}',
        None,
        (
            (1, 27, "global.shared_state", "warning", "is missing or empty: no stream has a log positio"),
            (1, 44, "global.stream_states", "error", "must be a list, but is an object"),
        ),
    ),
    (
        '{"type":"GLOBAL","global":{"shared_state":null,"stream_states":[null]}}',
        None,
        (
            (1, 43, "global.shared_state", "warning", "is missing or empty: no stream has a log positio"),
            (1, 65, "global.stream_states[0]", "error", "must be an object, but is null"),
        ),
    ),
    (
        '[{"type":"STREAM","stream":{"stream_descriptor":{"name":"a"},"stream_state":{}}},\n{"type":"STREAM","stream":{"stream_descriptor":{"name":"a"},"stream_state":{}}}]',
        None,
        ((2, 27, "[1].stream", "error", "the stream a is given more than once"),),
    ),
    (
        '{"type":"STATE","state":{"type":"GLOBAL"}}',
        None,
        ((1, 25, "state.global", "error", "is missing, and a state of type GLOBAL is kept t"),),
    ),
    (
        '{"type":"STATE","state":{}}',
        None,
        ((1, 25, "state.data", "error", "is missing, and a state of type LEGACY is kept t"),),
    ),
    (
        '{"type":"LEGACY","data":[]}',
        None,
        ((1, 25, "data", "error", "must be an object, but is a list, and a state of"),),
    ),
    (
        '{"type":"LEGACY","data":{"start":"2024"}}',
        None,
        ((1, 26, "data.start", "warning", "belongs to no known stream"),),
    ),
    (
        '{"stateType":"streams","streamState":[]}',
        None,
        ((1, 14, "stateType", "error", "must be one of stream, global, legacy, not_set,"),),
    ),
    (
        '{"stateType":"stream","streamState":{}}',
        None,
        ((1, 37, "streamState", "error", "must be a list, and a state of type stream is ke"),),
    ),
    (
        '{"stateType":"global"}',
        None,
        ((1, 1, "globalState", "error", "is missing, and a state of type global is kept t"),),
    ),
    (
        '{"stateType":"stream","streamState":[7]}',
        None,
        ((1, 38, "streamState[0]", "error", "must be an object, but is a number"),),
    ),
    (
        A % '{"stream_descriptor":{"name":"a"},"stream_state":{"cursor_field":["id"],"cursor":[1]}}',
        None,
        ((1, 108, "stream.stream_state.cursor", "error", "must be one value, but is a list"),),
    ),
    ('{"bookmarks":[]}', None, ((1, 14, "bookmarks", "error", "must be an object with a bookmark for each strea"),)),
    (
        '{"bookmarks":null}',
        None,
        ((1, 14, "bookmarks", "warning", "is null: the tap reads every stream from its sta"),),
    ),
    (S % "null", None, ((1, 19, "bookmarks.s", "warning", "is null: the tap reads the stream from its start"),)),
    (S % "[]", None, ((1, 19, "bookmarks.s", "error", "must be an object, but is a list"),)),
    (
        S % '{"lsn":-1}',
        None,
        ((1, 26, "bookmarks.s.lsn", "error", "must be a log sequence number, of 64 bits, but i"),),
    ),
    (
        S % '{"lsn":"x"}',
        None,
        ((1, 26, "bookmarks.s.lsn", "error", "must be a log sequence number, of 64 bits, but i"),),
    ),
    (
        S % '{"log_file":"b"}',
        None,
        ((1, 19, "bookmarks.s", "error", "has no MySQL binary log position: log_file must"),),
    ),
    (
        S % '{"replication_key":7}',
        None,
        ((1, 38, "bookmarks.s.replication_key", "error", "must be a text, but is a number"),),
    ),
    (
        S % '{"replication_key":"id"}',
        None,
        ((1, 19, "bookmarks.s.replication_key_value", "warning", "is missing: the tap reads the stream from its st"),),
    ),
    (
        S % '{"replication_key_value":7}',
        None,
        ((1, 19, "bookmarks.s.replication_key", "warning", "is missing: it is not known whose value this is"),),
    ),
    (
        S % '{"replication_key":"id","replication_key_value":[7]}',
        None,
        ((1, 67, "bookmarks.s.replication_key_value", "error", "must be one value, but is a list"),),
    ),
    (
        S % '{"replication_key":"id","replication_key_valu":7}',
        None,
        (
            (1, 19, "bookmarks.s.replication_key_value", "warning", "is missing: the tap reads the stream from its st"),
            (1, 43, "bookmarks.s.replication_key_valu", "warning", "is not a key of Singer; `replication_key_value`"),
        ),
    ),
    (S % '{"partitions":{}}', None, ((1, 33, "bookmarks.s.partitions", "error", "must be a list, but is an object"),)),
    (
        S % '{"partitions":[{}]}',
        None,
        ((1, 34, "bookmarks.s.partitions[0]", "error", "has no context that says which partition it is"),),
    ),
    (
        S % '{"partitions":[{"context":{"a":1}},{"context":{"a":1}}]}',
        None,
        ((1, 54, "bookmarks.s.partitions[1]", "error", "is given more than once, on which the tap fails"),),
    ),
    ('{"bookmarks":{"":{}}}', None, ((1, 15, 'bookmarks[""]', "error", "names no stream"),)),
    (
        '{"bookmarks":{},"currently_syncing":7}',
        None,
        ((1, 37, "currently_syncing", "error", "must be a text or null, but is a number"),),
    ),
    ('{"type":"STATE","value":7}', None, ((1, 25, "value", "error", "must be an object, but is a number"),)),
    ('{"type":"STATE","value":null}', None, ((1, 25, "value", "error", "must be an object, but is null"),)),
    (
        '{"singer_state":{"bookmarks":7}}',
        None,
        ((1, 30, "singer_state.bookmarks", "error", "must be an object with a bookmark for each strea"),),
    ),
    (D % "[]", None, ((1, 77, "sources", "error", "must be an object, but is a list"),)),
    (D % '{"s":7}', None, ((1, 82, "sources.s", "error", "must be an object, but is a number"),)),
    (
        D % '{"s":{"resources":[]}}',
        None,
        ((1, 95, "sources.s.resources", "error", "must be an object, but is a list"),),
    ),
    (
        D % '{"s":{"resources":{"r":7}}}',
        None,
        ((1, 100, "sources.s.resources.r", "error", "must be an object, but is a number"),),
    ),
    (
        D % '{"s":{"resources":{"r":{"incremental":7}}}}',
        None,
        ((1, 115, "sources.s.resources.r.incremental", "error", "must be an object, but is a number"),),
    ),
    (
        D % '{"s":{"resources":{"r":{"incremental":{"c":7}}}}}',
        None,
        ((1, 120, "sources.s.resources.r.incremental.c", "error", "must be an object, but is a number"),),
    ),
    (
        D % '{"s":{"resources":{"r":{"incremental":{"c":{}}}}}}',
        None,
        (
            (
                1,
                120,
                "sources.s.resources.r.incremental.c.last_value",
                "warning",
                "is missing: dlt reads the resource from its star",
            ),
        ),
    ),
    (
        D % '{"s":{"resources":{"r":{"incremental":{"c":{"last_value":1,"unique_hashes":7}}}}}}',
        None,
        (
            (
                1,
                152,
                "sources.s.resources.r.incremental.c.unique_hashes",
                "error",
                "must be a list, but is a number: dlt loads rows",
            ),
        ),
    ),
    (
        D % '{"s":{"resources":{"r":{"incremental":{"c":{"last_value":"\uf027x","unique_hashes":[]}}}}}}',
        None,
        (
            (
                1,
                134,
                "sources.s.resources.r.incremental.c.last_value",
                "warning",
                "does not fit the type that its first character m",
            ),
        ),
    ),
    (
        D % '{"s":{"resource":{}}}',
        None,
        ((1, 83, "sources.s.resource", "warning", "is not a key of dlt; `resources` is, and it is m"),),
    ),
    (
        '{"_state_version":"1","_state_engine_version":4,"sources":{}}',
        None,
        ((1, 19, "_state_version", "error", "must be a whole number, 0 or more, but is a text"),),
    ),
    (
        '{"_state_version":1,"_state_engine_version":9,"sources":{}}',
        None,
        ((1, 45, "_state_engine_version", "error", "is above 4, the greatest that dlt 1.31 knows: it"),),
    ),
    (
        '{"pipeline_name":"p","sources":{}}',
        None,
        (
            (1, 1, "_state_version", "error", "is missing, without which dlt cannot read the st"),
            (1, 1, "_state_engine_version", "error", "is missing, without which dlt cannot read the st"),
        ),
    ),
    ('{"version":8}', None, ((1, 12, "version", "error", "is 8, a version of the future"),)),
    (
        ONE % '{"LSN":"0/198C935"}',
        None,
        ((1, 68, "streams[0].state.LSN", "error", "looks like `lsn` mistyped, and OLake takes it"),),
    ),
    (
        ONE % '{"LSN":"0x0000002800000168000E"}',
        None,
        ((1, 68, "streams[0].state.LSN", "error", "looks like `lsn` mistyped, and OLake takes it"),),
    ),
    (
        ONE % '{"LSN":7}',
        None,
        ((1, 68, "streams[0].state.LSN", "warning", "looks like `lsn` mistyped, and OLake takes it"),),
    ),
    (
        ONE % '{"binlog_File":"b.000001"}',
        None,
        ((1, 68, "streams[0].state.binlog_File", "error", "looks like `binlog_file` mistyped"),),
    ),
    (
        ONE % '{"binlog_file":"b.000001","binlog_position":4,"server_id":0}',
        None,
        ((1, 125, "streams[0].state.server_id", "error", "must be a whole number of 1 to 4294967295, but i"),),
    ),
    (
        G % '{"state":{"server_id":0,"state":{"position":{"Name":"b.000001","Pos":4}}},"streams":[]}',
        None,
        ((1, 49, "global.state.server_id", "error", "must be a whole number of 1 to 4294967295, but i"),),
    ),
    (
        G % "{}",
        None,
        (
            (1, 27, "global.streams", "warning", "is missing: OLake does not know whose snapshots"),
            (1, 27, "global.state", "warning", "is missing or empty: no stream has a log positio"),
        ),
    ),
    (
        '{"selected_streams":{"public":[]},"streams":[{"stream":{"name":"a"}}]}',
        None,
        ((1, 21, "selected_streams", "error", "is a key of OLake's catalog, streams.json, and n"),),
    ),
    (
        '{"type":"STREAM","streams":[]}\n{"type":"STREAM","streams":[]}',
        None,
        ((2, 1, "", "error", "this is not JSON: there is more after its end"),),
    ),
    (
        "[" + A % '{"stream_descriptor":{"name":"a"},"stream_state":{}}' + ",null]",
        None,
        ((1, 82, "[1]", "error", "must be an object, but is null"),),
    ),
    (
        "["
        + A % '{"stream_descriptor":{"name":"a"},"stream_state":{}}'
        + ',{"type":"GLOBAL","global":{"shared_state":{"x":1},"stream_states":[]}}]',
        None,
        ((1, 82, "[1]", "error", "is a state of type GLOBAL beside one of type STR"),),
    ),
    (
        "[" + ",".join(['{"type":"GLOBAL","global":{"shared_state":{"x":1},"stream_states":[]}}'] * 2) + "]",
        None,
        ((1, 73, "[1]", "error", "is a state of type GLOBAL beside one of type GLO"),),
    ),
    (
        '{"type":"LEGACY","data":{"cdc":true,"streams":[{"stream_name":"a","cursor_field":[],"cursor":null}]}}',
        None,
        ((1, 25, "data.cdc_state", "warning", "is missing or empty: no stream has a log positio"),),
    ),
    (
        '{"type":"STATE","value":{"users":2,"bookmark":{}}}',
        None,
        (
            (1, 25, "value.bookmarks", "warning", "is missing: each member is taken for the state o"),
            (1, 36, "value.bookmark", "error", "is not a key of Singer; `bookmarks` is, and it i"),
        ),
    ),
    (
        '{"sources":{"s":{"resources":{"r":{"incremental":{"c":{"last_value":1}}}}}}}',
        None,
        (
            (1, 1, "_state_version", "error", "is missing, without which dlt cannot read the st"),
            (1, 1, "_state_engine_version", "error", "is missing, without which dlt cannot read the st"),
        ),
    ),
    (
        D % '{"a":{"resources":{"b.c":{}}},"a.b":{"resources":{"c":{}}}}',
        None,
        ((1, 131, 'sources["a.b"].resources.c', "error", "two resources are called a.b.c, with the names o"),),
    ),
)
