"""What is read from the text of a query is what Spark's analysed plan of it says; functions are read from plans."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from odi_assets.lineage.made import NotFollowed, Origin, Rows
from odi_assets.lineage.plan_rows import frame_rows, marked
from odi_assets.lineage.query_rows import query_rows
from odi_assets.spark.own_session import own_session

SCHEMAS = {
    "a": "id BIGINT, day STRING, s STRUCT<x: INT, y: INT>, arr ARRAY<INT>, v INT, ts TIMESTAMP",
    "b": "id BIGINT, name STRING, w INT",
}
VIEWS = (("a", ("id", "day", "s", "arr", "v", "ts")), ("b", ("id", "name", "w")))
QUERIES = """
select id from a qualify row_number() over (partition by day order by id) = 1
select id, x from a lateral view explode(arr) t as x order by id limit 3
select day, (select max(id) from a b where b.day = a.day) m, sum(id) s from a where id in (select id from b) \
group by all
select day, sum(v) as v from a group by day having v > 1
select day, sum(v) as v from a group by day having sum(v) > 1
select id, v as day from a order by day
select id, v + 1 as day from a order by day limit 2
select v as day, row_number() over (order by v) rn from a qualify rn = 1 and day = 3
select a.*, b.name from a join b using (id)
select id, name from a right join b using (id)
select * from a full join b using (id)
select id, w from b natural join (select id, v from a) x
with c as (select id, v * 2 as v from a where day = 'x'), \
d as (select c.id, c.v, b.w from c left join b on b.id = c.id) \
select d.id, sum(case when w > 1 then v else 0 end) as t from d group by d.id
select id, v from a union all select w, id from b
select id, v from a union select w, id from b
select id from a intersect select id from b
select id from a except select w from b
select id, v + 1 as v, v * 2 as z from a
select v + 1 as p, p * 2 as z from a
select day, window.start as s, count(*) c from a group by day, window(ts, '5 minutes')
select if(v > 1, id, null) i, nvl2(day, id, v) n, decode(v, 1, id, 2, day, s.x) d, coalesce(id, v) c from a
select max_by(id, v) m, sum(id) filter (where v > 1) f, count(v) c, count(*) n, first(day) fi from a
select day, v, count(*) c from a group by cube(day, v)
select day, grouping_id() g, sum(id) t from a group by grouping sets ((day), ())
select id, lead(v) over w as l from a window w as (partition by day order by ts)
select transform(arr, e -> e + v) t, filter(arr, e -> e > id) f from a
select s.x, s['y'] as y, struct(a.*) st from a
select a.id, l.q from a, lateral (select max(w) as q from b where b.id = a.id) l
select id, exists(select 1 from b where b.id = a.id and b.w > 3) e from a
select distinct day, v from a
select id, explode(arr) as e, day from a
select a.id from a left semi join b on a.id = b.id and b.w > 2
select a.id from a left anti join b on a.id = b.id
select * except (s, arr) from a
select id, date_trunc(day, ts) t, date_trunc('month', ts) m from a
select day, collect_list(v) cl, percentile_approx(v, 0.5) p, count_if(v > 3) ci, \
listagg(day, ',') within group (order by id) la, percentile_cont(0.5) within group (order by v) pc from a group by day
select count(distinct v, id) d, any_value(ts) t from a
select r.id, k from range(5) r join (select id k from a) on r.id = k
select day from (select day, v from a order by v desc limit 5)
select id, sum(v) over (partition by day) sv from a where v between 1 and 2
select id, m from a join (select id, max(w) as m from b group by id) using (id) where m > 2
select x.id, y.v from a x join a y on x.id = y.v
select a.id, (select count(*) from b) n from a
select explode(map(id, v)) as (k, q) from a
select id from a cluster by v
select cast(id as string), s.y from a
select a.id from a anti join b on a.id = b.id
select a.id from a semi join b using (id)
select id div 2 as d, id % 3 m, id <=> v e from a
select id from a minus select id from b
from a select id, v
select * from a where day rlike 'x' and v not in (1, 2)
select "day" as lit, `day` from a
select first_value(v) over (order by id) f from a
select id, v from a sort by v
select interval 1 day + ts t from a
select id as `my col` from a
select count(if(v > 1, id, null)) c from a
select a.day || '-' || b.name j from a, b where a.id = b.id
select /*+ broadcast(b) */ a.id, w from a join b on a.id = b.id
select case when v > 1 then 'x' when day = 'y' then name end c from a join b using (id)
select id, sum(v) over (partition by day order by ts range between interval 1 day preceding and current row) r from a
select posexplode(arr) as (p, e), id from a
select id, t.* from a lateral view inline(array(struct(v, day))) t as p, q
select max(struct(ts, v)).v m, max(named_struct('t', ts, 'v', day)).v n from a
select array_sort(arr, (l, r) -> l - r + v) x, map_filter(map(id, v), (k, q) -> k > id) y from a
select a.id from a where exists (select 1 from b where b.id = a.id) and id not in (select w from b where name = day)
select id from a where (id, v) in (select id, w from b)
select k.day, k.n from (select day, count(*) n from a group by day having count(*) > 1) k
select sum(v) filter (where id > 1) over (partition by day) s from a
select greatest(id, v) g, hash(*) h, xxhash64(day, v) x, to_json(struct(*)) j from a
select id, row_number() over (order by day) as day from a order by day desc limit 2
select distinct on_day from (select day as on_day, v from a)
select id from a union distinct select w from b
(select id from a) union all (select w from b) order by id limit 2
with x as (with y as (select id from a) select * from y) select * from x
select x.id xid from (select id from a) as x cross join lateral (select x.id + w as z from b) as l where z > 1
select id, mode(v) m, regr_slope(v, id) r, corr(v, id) c from a group by id
select ifnull(day, 'x') i, nvl(v, 0) n from a
select id from a tablesample (5 rows)
select ntile(3) over (order by id) t from a
select id, day from a order by all limit 2
select id from (select id, day from a order by all desc nulls last limit 2)
select * from b order by all limit 2
select id from a union all select w from b order by all limit 2
select day, v, count(*) c from a group by grouping sets ((1), (2))
select day as d, v, count(*) c from a group by rollup (2, 1)
select day, v, count(*) c from a group by 1, cube (2)
select id from a order by (1)
select * from a join b using (ID)
select * from a full join b using (ID)
select * from b right join (select ID, v from a) x using (iD)
select m.v, m['ts'] t, x.m.ts u, m from (select id, max(struct(ts, v)) filter (where id > 1) m from a group by id) x
select struct(v as x, a.id, v + 1).x q, struct(struct(v, id) as p, ts).p.id z from a
select first(struct(v, id)).id f, max_by(struct(v, id), ts).v g, min(struct(ts, v)).ts m from a
select (max(struct(ts, v)) over (partition by id)).v w from a
select x.p.v from (select named_struct('v', s.x, 'w', day) p from a) x where x.p.w = 'x'
select k['v'].x y, k['w'] z from (select struct(s as v, id as w) k from a)
from a |> aggregate count(*) as c group by day as d
from a |> aggregate sum(v) as s group by id + v as g
with q as (from a |> aggregate sum(v) as s group by id + v as g) select s from q
from a |> where v > 1 |> aggregate count(*) as c group by day as d, id |> order by d |> limit 2
from a |> aggregate count(*) as c group by day as `K k` |> where c > 1 |> select `K k`
from a |> extend v + 1 as z |> select id, z |> limit 3
select p.id, p.v from (select if(id > 1, struct(id, v), struct(v as id, id as v)) p from a)
"""


def frames(spark: SparkSession) -> dict[str, DataFrame]:
    return {name: marked(spark.createDataFrame([], schema), name) for name, schema in SCHEMAS.items()}


def shown(rows: Rows) -> dict[str, tuple[list[Origin], list[Origin]]]:
    return {name: (sorted(made.values), sorted(made.conditions | rows.decided)) for name, made in rows.columns}


@pytest.mark.parametrize("sql", [line for line in QUERIES.strip().splitlines() if line])
def test_the_text_and_the_plan_of_a_query_say_the_same(sql: str, spark: SparkSession) -> None:
    with own_session(spark):
        for name, frame in frames(spark).items():
            frame.createOrReplaceTempView(name)
        assert shown(query_rows(sql, VIEWS)) == shown(frame_rows(spark.sql(sql), {}))


def test_the_column_of_a_pivot_decides_and_the_aggregate_goes_in(spark: SparkSession) -> None:
    with own_session(spark):
        for name, frame in frames(spark).items():
            frame.createOrReplaceTempView(name)
        for aggregates, columns in (("sum(v)", ("x", "y")), ("sum(v) t, first(v) f", ("x_t", "y_f"))):
            pivot = f"pivot ({aggregates} for day in ('x' as x, 'y' as y))"
            rows = shown(frame_rows(spark.sql(f"select * from (select id, day, v from a) {pivot}"), {}))
            for column in columns:
                values, conditions = rows[column]
                assert values == [Origin("a", "v")]
                assert Origin("a", "day") in conditions


def test_a_function_is_read_from_the_plan_of_what_it_returns(spark: SparkSession) -> None:
    x = spark.createDataFrame([(1, 2, "a")], "id INT, v INT, day STRING")
    y = spark.createDataFrame([(1, 5)], "id INT, w INT")
    again = x.select(F.col("id").alias("other"), F.col("v").alias("more"))
    ranked = y.withColumn("rank", F.rank().over(Window.partitionBy("id").orderBy("w"))).where("rank = 1")
    rows = x.join(again, F.col("other") == x.id).join(ranked, "id").groupBy("day").agg(
        F.sum("w").alias("total"), F.max("more").alias("most"), F.udf(lambda one: one, "string")("day").alias("same")
    )  # fmt: skip
    found = shown(frame_rows(rows, {"x": x, "y": y}))
    decided = [Origin(*one.split(".")) for one in ("x.day", "x.id", "y.id", "y.w")]
    assert found == {
        "day": ([Origin("x", "day")], decided),
        "total": ([Origin("y", "w")], decided),
        "most": ([Origin("x", "v")], decided),
        "same": ([Origin("x", "day")], decided),
    }


def test_rows_that_go_through_python_are_not_followed(spark: SparkSession) -> None:
    x = spark.createDataFrame([(1, 2)], "id INT, v INT")
    collected = spark.createDataFrame(x.collect(), x.schema)
    for rows, why in (
        (x.mapInPandas(lambda frames: frames, "id INT"), "its rows go through Python code"),
        (collected.select("id"), "it reads rows that are of none of its inputs"),
    ):
        with pytest.raises(NotFollowed, match=why):
            frame_rows(rows, {"x": x})


def test_two_inputs_that_are_one_table_are_told_apart_by_their_columns(spark: SparkSession) -> None:
    x = spark.createDataFrame([(1, 2)], "id INT, v INT")
    y = x.select("id", "v").withColumnRenamed("v", "w").withColumnRenamed("w", "v")
    rows = x.join(y.select(F.col("id").alias("i"), F.col("v").alias("u")), F.col("i") == x.id)
    assert shown(frame_rows(rows, {"x": x, "y": y}))["u"][0] == [Origin("y", "v")]
