"""Reads the state of Airbyte: messages of its protocol, one or many, and what its platform exports.

Forms: ``message`` is an AirbyteMessage of type STATE, ``messages`` any number of them as JSON Lines, of which the last
one of a stream counts; ``state`` is an AirbyteStateMessage alone, ``states`` a list of them, as a connector takes it
with ``--state``, ``legacy`` an object of an early connector's own; ``export`` is what the platform's API gives
(`/v1/state/get`), ``streams`` the list that its UI shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from odi_assets.documents.airbyte.state import read_shared, read_stream
from odi_assets.documents.findings import Findings
from odi_assets.documents.model import CursorDocument, CursorStream, SharedPosition, StateType, Tool
from odi_assets.documents.positions import LogPosition
from odi_assets.documents.values import kind_of, shown
from odi_assets.util.exact_json import JsonPath

_STATE_KEYS = frozenset({"type", "stream", "global", "data", "sourceStats", "destinationStats", "id"})
_EXPORT_KEYS = frozenset({"stateType", "connectionId", "state", "streamState", "globalState"})
_EXPORT_TYPES = {
    "stream": StateType.STREAM,
    "global": StateType.GLOBAL,
    "legacy": StateType.LEGACY,
    "not_set": StateType.STREAM,
}
_TYPES = frozenset({StateType.STREAM, StateType.GLOBAL, StateType.LEGACY})


class AirbyteSpelling(NamedTuple):
    """The keys of a stream's state and of the shared one: the protocol's spelling or the platform's."""

    descriptor: str
    state: str
    shared: str
    streams: str


PROTOCOL = AirbyteSpelling("stream_descriptor", "stream_state", "shared_state", "stream_states")
PLATFORM = AirbyteSpelling("streamDescriptor", "streamState", "sharedState", "streamStates")


class StatePlace(NamedTuple):
    """Where a stream's state is in a document, and what goes with it when the stream is taken out."""

    stream: str
    at: JsonPath
    whole: JsonPath


def form_of(content: Any) -> str | None:
    """The form of the document, or None if it does not look like one of Airbyte."""
    if isinstance(content, list):
        forms: Mapping[str, Callable[[Any], bool]] = {
            "messages": _is_message,
            "streams": _is_stream,
            "states": _is_state,
        }
        return next((form for form, fits in forms.items() if any(map(fits, content))), None)
    if not isinstance(content, dict):
        return None
    if _is_message(content):
        return "message"
    if "stateType" in content or "connectionState" in content:
        return "export"
    if "cdc" in content and isinstance(content.get("streams"), list):
        return "legacy"
    return "state" if _is_state(content) else None


def _is_message(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "STATE" and isinstance(item.get("state"), dict)


def _is_state(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    shared = item.get("global")
    if isinstance(shared, dict):
        return bool(shared.keys() & {*PROTOCOL, *PLATFORM})
    stream = item.get("stream")
    if isinstance(stream, dict):
        return bool(stream.keys() & {*PROTOCOL, *PLATFORM})
    return item.get("type") == StateType.LEGACY and "data" in item


def _is_stream(item: Any) -> bool:
    return isinstance(item, dict) and bool(item.keys() & {PROTOCOL.descriptor, PLATFORM.descriptor})


def read(content: Any, findings: Findings) -> CursorDocument | None:
    """The document of a JSON value; None if there is none to be seen in it. What is wrong goes to ``findings``."""
    form = form_of(content)
    if content == {} or content == []:
        return CursorDocument(Tool.AIRBYTE, StateType.STREAM, 0, (), None, content, "states")
    if form is None:
        if isinstance(content, dict) and not content.keys() & _STATE_KEYS:
            # Before there were types, the state of a connector was an object of its own.
            return _Reader(content, "legacy", findings).read()
        text = f"must be a state message, a list of them or an export, but is {kind_of(content)} of another shape"
        findings.add((), text, "give what the source printed, or what the platform exports")
        return None
    return _Reader(content, form, findings).read()


def read_lines(content: list[Any], findings: Findings) -> CursorDocument | None:
    """The document of JSON Lines, one value each; the later state of a stream counts. See :func:`read`."""
    form = form_of(content)
    return None if form is None else _Reader(content, form, findings, later_counts=True).read()


def places(content: Any, form: str) -> Iterator[StatePlace]:
    """Each stream's state in a document without findings, in the order of the text."""
    if form == "messages":
        for index, item in enumerate(content):
            if _is_message(item):
                yield from _of_state(item["state"], (index, "state"))
    elif form == "message":
        yield from _of_state(content["state"], ("state",))
    elif form == "states":
        for index, item in enumerate(content):
            yield from _of_state(item, (index,))
    elif form == "streams":
        yield from _of_list(content, ())
    elif form == "export":
        inner, at = (
            (content["connectionState"], ("connectionState",)) if "connectionState" in content else (content, ())
        )
        state_type = inner["stateType"]
        if state_type == "stream":
            yield from _of_list(inner[PLATFORM.state], (*at, PLATFORM.state))
        elif state_type == "global":
            yield from _of_global(inner["globalState"], (*at, "globalState"))
        elif state_type == "legacy":
            yield from _of_legacy(inner["state"], (*at, "state"))
    elif form == "state":
        yield from _of_state(content, ())
    elif form == "legacy":
        yield from _of_legacy(content, ())


def _of_state(state: Mapping[str, Any], at: JsonPath) -> Iterator[StatePlace]:
    kind = StateType(_kind_of_state(state))
    inner, inner_at = state[_PARTS[kind]], (*at, _PARTS[kind])
    if kind is StateType.GLOBAL:
        yield from _of_global(inner, inner_at)
    elif kind is StateType.LEGACY:
        yield from _of_legacy(inner, inner_at)
    else:
        yield from _of_stream(inner, inner_at, None)


def _of_global(shared: Mapping[str, Any], at: JsonPath) -> Iterator[StatePlace]:
    key = names_of(shared).streams
    yield from _of_list(shared[key], (*at, key))


def _of_list(items: list[Any], at: JsonPath) -> Iterator[StatePlace]:
    for index, item in enumerate(items):
        yield from _of_stream(item, (*at, index), (*at, index))


def _of_stream(item: Mapping[str, Any], at: JsonPath, whole: JsonPath | None) -> Iterator[StatePlace]:
    names = names_of(item)
    if names.state in item:
        state_at = (*at, names.state)
        # Of a message that stands for itself only the state goes.
        yield StatePlace(_id_of(item[names.descriptor]), state_at, whole or state_at)


def _of_legacy(data: Mapping[str, Any], at: JsonPath) -> Iterator[StatePlace]:
    if _is_of_databases(data):
        for index, item in enumerate(data["streams"]):
            path = (*at, "streams", index)
            yield StatePlace(_joined(item.get("stream_namespace"), item["stream_name"]), path, path)
        return
    for name, state in data.items():
        if isinstance(state, dict):
            yield StatePlace(name, (*at, name), (*at, name))


def _is_of_databases(data: Mapping[str, Any]) -> bool:
    """Whether a LEGACY state is one of the database sources, which list their tables."""
    return isinstance(data.get("streams"), list) and "cdc" in data


def _id_of(descriptor: Mapping[str, Any]) -> str:
    return _joined(descriptor.get("namespace"), descriptor["name"])


def _joined(namespace: Any, name: str) -> str:
    return f"{namespace}.{name}" if isinstance(namespace, str) and namespace else name


def _kind_of_state(state: Mapping[str, Any]) -> Any:
    """The type of a state. It came later than messages: without it, the one part that is there counts."""
    state_type = state.get("type")
    if state_type is None:
        return next((kind for kind, key in _PARTS.items() if state.get(key) is not None), StateType.LEGACY)
    return state_type


def names_of(item: Mapping[str, Any]) -> AirbyteSpelling:
    """The names that an object uses."""
    return PLATFORM if item.keys() & set(PLATFORM) else PROTOCOL


class _Reader:
    """Reads one document; what is wrong goes to ``findings``."""

    def __init__(self, content: Any, form: str, findings: Findings, *, later_counts: bool = False) -> None:
        self.content = content
        self.form = form
        self.findings = findings
        self.later_counts = later_counts or form == "messages"
        self.type: StateType | None = None
        self.streams: dict[str, CursorStream] = {}
        self.shared: SharedPosition | None = None

    def read(self) -> CursorDocument:
        content = self.content
        if self.form == "messages":
            for index, item in enumerate(content):
                if _is_message(item):
                    self._state(item["state"], (index, "state"))
        elif self.form == "message":
            self._state(content["state"], ("state",))
        elif self.form == "states":
            for index, item in enumerate(content):
                self._state(item, (index,))
        elif self.form == "state":
            self._state(content, ())
        elif self.form == "streams":
            self._streams(content, ())
        elif self.form == "export":
            self._export()
        else:
            self.type = StateType.LEGACY
            self._legacy(content, ())
        streams = tuple(self.streams[name] for name in sorted(self.streams))
        kind = self.type or StateType.STREAM
        return CursorDocument(Tool.AIRBYTE, kind, 0, streams, self.shared, content, self.form)

    def _state(self, state: Any, at: JsonPath) -> None:
        if not isinstance(state, dict):
            self.findings.add(at, f"must be an object, but is {kind_of(state)}", "restore the message")
            return
        self.findings.of_keys(at, state, _STATE_KEYS)
        state_type = _kind_of_state(state)
        if not isinstance(state_type, str) or state_type not in _TYPES:
            text = f"must be one of {', '.join(sorted(_TYPES))}, but is {shown(state_type)}"
            self.findings.add((*at, "type"), text, "write the type of what the message holds")
            return
        kind = StateType(state_type)
        self._begin(kind, at)
        part = _PARTS[kind]
        inner = state.get(part)
        for other_part in _PARTS.values():
            # Old connectors give `data` beside the others, for old platforms.
            if other_part != part and other_part != "data" and state.get(other_part) is not None:
                text = f"is given beside a type of {state_type}, which keeps its state in `{part}`"
                self.findings.add((*at, other_part), text, "remove it, or correct the type", of_key=True)
        if not isinstance(inner, dict):
            what = "is missing" if part not in state else f"must be an object, but is {kind_of(inner)}"
            self.findings.add(
                (*at, part), f"{what}, and a state of type {state_type} is kept there", "restore the message"
            )
        elif kind is StateType.STREAM:
            self._stream(inner, (*at, part), repeatable=self.later_counts)
        elif kind is StateType.GLOBAL:
            self._global(inner, (*at, part))
        else:
            self._legacy(inner, (*at, part))

    def _begin(self, kind: StateType, at: JsonPath) -> None:
        """Note the type of the next state: only states of streams may follow each other."""
        if self.type is None or self.type is kind is StateType.STREAM:
            self.type = kind
        elif self.later_counts:
            # This state stands for all streams, as do the states after it.
            self.type, self.streams, self.shared = kind, {}, None
        else:
            text = f"is a state of type {kind} beside one of type {self.type}: Airbyte takes one GLOBAL or LEGACY "
            self.findings.add(at, text + "state, or any number of STREAM states", "keep those that count")

    def _export(self) -> None:
        content: Any = self.content
        at: JsonPath = ()
        if "connectionState" in content:
            content, at = content["connectionState"], ("connectionState",)
            if not isinstance(content, dict):
                self.findings.add(at, f"must be an object, but is {kind_of(content)}", "restore the export")
                return
        self.findings.of_keys(at, content, _EXPORT_KEYS, free=True)
        state_type = content.get("stateType")
        if not isinstance(state_type, str) or state_type not in _EXPORT_TYPES:
            text = (
                "is missing"
                if state_type is None
                else f"must be one of {', '.join(_EXPORT_TYPES)}, but is {shown(state_type)}"
            )
            self.findings.add((*at, "stateType"), text, "write the type of what the export holds")
            return
        self.type = _EXPORT_TYPES[state_type]
        key = {"stream": "streamState", "global": "globalState", "legacy": "state"}.get(state_type)
        if key is None:
            return
        inner: Any = content.get(key)
        container: type[Any] = list if state_type == "stream" else dict
        if not isinstance(inner, container):
            what = "is missing" if key not in content else f"must be {'a list' if container is list else 'an object'}"
            self.findings.add(
                (*at, key), f"{what}, and a state of type {state_type} is kept there", "restore the export"
            )
        elif state_type == "stream":
            self._streams(inner, (*at, key))
        else:
            (self._global if state_type == "global" else self._legacy)(dict(inner), (*at, key))

    def _global(self, shared: Mapping[str, Any], at: JsonPath) -> None:
        names = names_of(shared)
        self.findings.of_keys(at, shared, frozenset({names.shared, names.streams}))
        items = shared.get(names.streams)
        if not isinstance(items, list):
            what = "is missing" if names.streams not in shared else f"must be a list, but is {kind_of(items)}"
            self.findings.add((*at, names.streams), what, "write the list of the streams' states, or []")
            items = []
        state = shared.get(names.shared, shared.get("shared_state"))
        position = read_shared(state, (*at, names.shared), self.findings)
        self._streams(items, (*at, names.streams))
        self._share(position)

    def _share(self, position: LogPosition | None) -> None:
        self.shared = SharedPosition(position, frozenset(self.streams))
        if position is not None:
            self.streams = {name: stream._replace(position=position) for name, stream in self.streams.items()}

    def _streams(self, items: Any, at: JsonPath) -> None:
        for index, item in enumerate(items):
            self._stream(item, (*at, index))

    def _stream(self, item: Any, at: JsonPath, *, repeatable: bool = False) -> None:
        if not isinstance(item, dict):
            self.findings.add(
                at, f"must be an object, but is {kind_of(item)}", "remove it, or write the stream's state"
            )
            return
        names = names_of(item)
        self.findings.of_keys(at, item, frozenset({names.descriptor, names.state}))
        descriptor = item.get(names.descriptor)
        if not isinstance(descriptor, dict):
            what = "is missing" if descriptor is None else f"must be an object, but is {kind_of(descriptor)}"
            self.findings.add((*at, names.descriptor), what, "name the stream: name and, if it has one, namespace")
            return
        name, namespace = descriptor.get("name"), descriptor.get("namespace")
        if not isinstance(name, str) or not name:
            text = "is missing or empty" if not name else f"must be a text, but is {kind_of(name)}"
            self.findings.add((*at, names.descriptor, "name"), text, "name the stream")
            return
        if namespace is not None and not isinstance(namespace, str):
            text = f"must be a text, but is {kind_of(namespace)}"
            self.findings.add((*at, names.descriptor, "namespace"), text, "write a text, or null")
            return
        stream_id = _joined(namespace, name)
        if stream_id in self.streams and not repeatable:
            text = f"the stream {stream_id} is given more than once"
            self.findings.add(at, text, "keep the entry with the right state")
        self.streams[stream_id] = read_stream(
            (stream_id, namespace or "", name), item.get(names.state), (*at, names.state), self.findings
        )

    def _legacy(self, data: Mapping[str, Any], at: JsonPath) -> None:
        if _is_of_databases(data):
            for index, item in enumerate(data["streams"]):
                self._legacy_table(item, (*at, "streams", index))
            if data["cdc"] is True:
                position = read_shared(data.get("cdc_state"), (*at, "cdc_state"), self.findings)
                self._share(position)
            return
        for name, state in data.items():
            if isinstance(state, dict):
                self.streams[name] = read_stream((name, "", name), state, (*at, name), self.findings)
            else:
                text = "belongs to no known stream"
                self.findings.warn((*at, name), text, "see the connector's documentation", of_key=True)

    def _legacy_table(self, item: Any, at: JsonPath) -> None:
        name = item.get("stream_name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name:
            self.findings.add(at, "names no stream", "restore it: stream_name, stream_namespace, cursor_field, cursor")
            return
        namespace = item.get("stream_namespace")
        space = namespace if isinstance(namespace, str) else ""
        stream_id = _joined(space, name)
        if stream_id in self.streams:
            self.findings.add(at, f"the stream {stream_id} is given more than once", "keep the right entry")
        self.streams[stream_id] = read_stream((stream_id, space, name), item, at, self.findings)


_PARTS = {StateType.STREAM: "stream", StateType.GLOBAL: "global", StateType.LEGACY: "data"}
"""Where a state of each type is kept."""
