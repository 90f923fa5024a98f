"""What feeds what."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odi_assets.config.graph import Graph, NodeKey, state_key
from odi_assets.config.models import ProjectConfig
from odi_assets.errors import ConfigError
from odi_assets.util.graphs import find_cycles, topological_order
from odi_assets_tests.config.support import SOURCE, load, node, project


def graph(pipelines: dict[str, dict[str, list[str]]]) -> Graph:
    """A graph of pipelines, nodes and their inputs; a node without inputs reads a file."""
    read = {"connection": "lake", "format": "csv", "path": "in"}
    config = {
        "project": "demo",
        "connections": {"lake": {"type": "local"}},
        "pipelines": [
            {
                "pipeline": pipeline,
                "nodes": [
                    {
                        "name": name,
                        "inputs": inputs,
                        "write": {"connection": "lake", "path": f"{pipeline}/{name}"},
                        **({} if inputs else {"read": read}),
                    }
                    for name, inputs in nodes.items()
                ],
            }
            for pipeline, nodes in pipelines.items()
        ],
    }
    return Graph(ProjectConfig.model_validate(config))


TWO = {"p": {"late": ["raw", "mid"], "mid": ["raw"], "raw": []}, "q": {"sum": ["p.late", "$p.mid"], "own": []}}


def keys(*texts: str) -> tuple[NodeKey, ...]:
    return tuple(NodeKey.parse(text) for text in texts)


def test_nodes_come_after_what_they_need_and_otherwise_as_in_the_file() -> None:
    assert graph(TWO).order() == keys("p.raw", "p.mid", "p.late", "q.sum", "q.own")
    assert graph(TWO).order("q") == keys("q.sum", "q.own")


def test_upstream_and_downstream_are_what_a_node_touches_directly() -> None:
    found = graph(TWO)
    assert found.upstream(NodeKey("p", "late")) == keys("p.raw", "p.mid")
    assert found.upstream(NodeKey("q", "sum")) == keys("p.late", "p.mid")
    assert found.downstream(NodeKey("p", "mid")) == keys("p.late", "q.sum")
    assert found.downstream(NodeKey("q", "own")) == ()


def test_depends_on_counts_as_upstream_once(tmp_path: Path) -> None:
    text = project(SOURCE, "- {name: b, inputs: [raw], depends_on: [raw, p.raw], write: {connection: lake, path: b}}")
    assert Graph(load(tmp_path, text).config).upstream(NodeKey("p", "b")) == keys("p.raw")


def test_a_reference_is_resolved_from_its_node() -> None:
    found = graph(TWO)
    assert found.resolve(NodeKey("p", "late"), "raw") == NodeKey("p", "raw")
    assert found.resolve(NodeKey("q", "sum"), "p.raw") == NodeKey("p", "raw")
    assert found.resolve(NodeKey("q", "sum"), "$p.raw") == NodeKey("p", "raw")
    with pytest.raises(ConfigError, match=r"there is no node `q.raw`, which `q.sum` needs") as caught:
        found.resolve(NodeKey("q", "sum"), "raw")
    assert caught.value.fix == "did you mean `p.raw`?"


def test_a_key_is_text_and_back() -> None:
    key = NodeKey("p", "raw")
    assert str(key) == "p.raw"
    assert NodeKey.parse("p.raw") == NodeKey.parse("$p.raw") == key
    assert sorted([NodeKey("q", "a"), NodeKey("p", "b"), key]) == [NodeKey("p", "b"), key, NodeKey("q", "a")]
    assert pickle.loads(pickle.dumps(key)) == key


@pytest.mark.parametrize("text", ["", "raw", ".raw", "p.", "p.a.b", "$"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no node"):
        NodeKey.parse(text)


def test_what_is_not_there_is_refused_with_a_suggestion() -> None:
    found = graph(TWO)
    with pytest.raises(ConfigError, match=r"no pipeline `pp`") as pipeline:
        found.order("pp")
    assert pipeline.value.fix is not None
    with pytest.raises(ConfigError, match=r"no node `p.rwa`") as missing:
        found.upstream(NodeKey("p", "rwa"))
    assert missing.value.fix == "did you mean `p.raw`?"
    with pytest.raises(ConfigError, match=r"no node `x.y`"):
        found.node(NodeKey("x", "y"))


def test_a_graph_made_by_hand_has_no_cycle_and_no_loose_end_either() -> None:
    with pytest.raises(ConfigError, match=r"in a circle: p.a → p.b → p.a"):
        graph({"p": {"a": ["b"], "b": ["a"]}})
    with pytest.raises(ConfigError, match=r"there is no node `p.x`, which `p.a` needs"):
        graph({"p": {"a": ["x"]}})


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ("", "p.raw"),
        (", incremental: {mode: files}", "p.raw"),
        (", incremental: {mode: files, state_key: landing}", "landing"),
        (", incremental: {mode: rolling_window, column: c, lookback: 1}", "p.raw"),
    ],
)
def test_the_state_key_is_the_node_unless_its_increment_says_otherwise(
    tmp_path: Path, read: str, expected: str
) -> None:
    text = (
        f"- {{name: raw, read: {{connection: lake, format: csv, path: i{read}}}, write: {{connection: lake, path: r}}}}"
    )
    assert state_key(NodeKey("p", "raw"), node(tmp_path, text)) == expected


def test_the_state_key_of_an_input_counts_too(tmp_path: Path) -> None:
    found = node(
        tmp_path,
        SOURCE,
        "- {name: b, inputs: [{node: raw, incremental: {mode: version, state_key: k}}], "
        "write: {connection: lake, path: b, mode: append}}",
    )
    assert state_key(NodeKey("p", "b"), found) == "k"


def test_a_chain_of_thousands_is_ordered_without_recursion() -> None:
    count = 5000
    chain = {i: [i + 1] if i + 1 < count else [] for i in range(count)}
    assert topological_order(chain) == tuple(reversed(range(count)))
    assert find_cycles(chain) == []
    assert find_cycles({**chain, count - 1: [0]}) == [[*range(count), 0]]


def test_what_is_free_to_choose_comes_in_the_order_given() -> None:
    assert topological_order({"a": ["d"], "b": [], "c": ["b"], "d": []}) == ("b", "c", "d", "a")


def test_cycles_apart_from_one_another_are_all_found() -> None:
    needs = {"a": ["b"], "b": ["a"], "c": ["c"], "d": ["a", "c"]}
    assert find_cycles(needs) == [["a", "b", "a"], ["c", "c"]]


def test_thousands_of_nodes_without_a_cycle_are_looked_at_once() -> None:
    looks = 0

    class Looked(list[int]):
        def __iter__(self) -> Iterator[int]:
            nonlocal looks
            looks += 1
            return super().__iter__()

    for count in (3000, 6000):
        looks = 0
        assert find_cycles({i: Looked([i + 1] if i + 1 < count else []) for i in range(count)}) == []
        assert looks <= 2 * count


EDGES = st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=4), max_size=8).map(
    lambda edges: {vertex: list(edges.get(vertex, [])) for vertex in range(8)}
)


@given(EDGES)
def test_there_is_an_order_exactly_where_there_is_no_cycle(edges: dict[int, list[int]]) -> None:
    cycles = find_cycles(edges)
    for cycle in cycles:
        assert cycle[0] == cycle[-1]
        assert all(there in edges[here] for here, there in itertools.pairwise(cycle))
        assert len(set(cycle)) == len(cycle) - 1
    reaches = {vertex: _reachable(vertex, edges) for vertex in edges}
    assert bool(cycles) == any(vertex in reaches[vertex] for vertex in edges)
    if not cycles:
        order = topological_order(edges)
        assert sorted(order) == sorted(edges)
        assert all(order.index(other) < order.index(vertex) for vertex in edges for other in edges[vertex])


def _reachable(start: int, edges: dict[int, list[int]]) -> set[int]:
    found: set[int] = set()
    waiting = list(edges[start])
    while waiting:
        vertex = waiting.pop()
        if vertex not in found:
            found.add(vertex)
            waiting.extend(edges[vertex])
    return found
