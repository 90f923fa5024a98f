"""The reader options that a mark keeps: those that values depend on, and no secret."""

from __future__ import annotations

from odi_assets.sources.reading import changes, options_of


def test_no_secret_is_kept_and_of_unknown_options_a_digest_alone() -> None:
    kept = options_of({"password": "s3cret", "accessToken": "s3cret", "sessionInitStatement": "SET ROLE s3cret"})
    assert list(kept) == ["read.options.sessioninitstatement"]
    assert "s3cret" not in str(kept)


def test_an_option_counts_for_the_types_that_are_read_by_it() -> None:
    given = {"timestampFormat": "dd/MM/yyyy", "nullValue": "NA", "mergeSchema": "true"}
    assert list(options_of(given, "TIMESTAMP")) == ["read.options.nullvalue", "read.options.timestampformat"]
    assert list(options_of(given, "BIGINT")) == ["read.options.nullvalue"]


def test_an_option_with_the_value_that_it_has_without_being_set_is_none() -> None:
    assert options_of({"delimiter": ",", "encoding": "UTF-8", "multiLine": "false"}) == {}


def test_an_option_that_may_be_secret_is_said_to_be_another_one_and_not_shown() -> None:
    then, now = ({"cursor": options_of({"sessionInitStatement": value})} for value in ("SET a = 1", "SET a = 2"))
    assert changes(then, now) == ["`read.options.sessioninitstatement` is another one now"]
