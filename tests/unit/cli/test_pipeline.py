"""hopline pipeline: what can be said before Spark is started."""

import shutil
import sys
import time
from io import StringIO

import pytest
from rich.console import Console

from hopline.cli.pipeline import _show
from hopline.errors import SparkError
from tests.unit.capture.story import Story


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch):
    def spark_session(*_args, **_more):
        pytest.fail("Spark was started")

    monkeypatch.setattr("hopline.spark.session.spark_session", spark_session)


@pytest.fixture
def folders(tmp_path):
    (tmp_path / "captures").mkdir()
    return str(tmp_path / "captures"), str(tmp_path / "tables")


@pytest.mark.parametrize("command", ["run", "stream"])
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--only", "flow"], "no such table: flow; there are messages, rejects"),
        (["--only", ""], "--only names no table; there are messages, rejects"),
        (["--only", " , "], "--only names no table; there are messages, rejects"),
        (["--since", "yesterday"], "--since must be a time"),
        (["--key", "orders"], "--key must be DOMAIN=HEX"),
        (["--keys", "/nowhere"], "cannot read /nowhere"),
        (["--v3-ttl", "seconds"], "'seconds' is not one of"),
        (["--reach", "6"], "--reach must be a duration"),
        (["--reach", "13h"], "--reach must be a duration from 0s to 12h"),
        (["--master", "nonsense"], "SPARK_BAD_MASTER: 'nonsense' is no master of Spark"),
        (["--master", "local[x]"], "SPARK_BAD_MASTER: 'local[x]' is no master of Spark"),
        (["--master", ""], "SPARK_BAD_MASTER: '' is no master of Spark"),
    ],
)
def test_wrong_usage(here, folders, command, options, complaint):
    result = here("pipeline", command, *folders, *options)
    assert result.code == 2
    assert complaint in " ".join(result.errors.split())


@pytest.mark.parametrize("until", ["2026-11-15", "2026-11-14"])
def test_time_goes_forward(here, folders, until):
    result = here("pipeline", "run", *folders, "--since", "2026-11-15", "--until", until)
    assert result.code == 2
    assert "--since must be before --until" in " ".join(result.errors.split())


def test_a_wrong_master_is_said_also_if_nothing_is_new(here, folders):
    assert here("pipeline", "run", *folders, "--master", "local[2]").code == 0
    result = here("pipeline", "run", *folders, "--master", "local[two]")
    assert (result.code, result.lines) == (2, [])
    assert len(result.errors.splitlines()) == 1


def test_a_key_on_the_command_line_is_not_repeated(here, folders):
    assert "c0ffee" not in here("pipeline", "run", *folders, "--key", "orders=c0ffeeX").errors


@pytest.mark.parametrize("every", ["0", "soon", "nan", "inf", "1e12"])
def test_every_must_be_some_time(here, folders, every):
    assert here("pipeline", "stream", *folders, "--until-drained", "--every", every).code == 2


def test_no_capture(here, folders):
    result = here("pipeline", "run", folders[0] + "x", folders[1])
    assert (result.code, result.lines) == (2, [])
    assert result.errors.startswith("hopline: CAPTURE_NOT_FOUND: ")


@pytest.mark.parametrize("command", ["run", "stream"])
def test_json_lines_are_to_be_imported_first(here, folders, tmp_path, command):
    (tmp_path / "captures" / "client.jsonl").write_text("")
    result = here("pipeline", command, *folders)
    assert (result.code, result.lines) == (2, [])
    assert result.errors.startswith("hopline: CAPTURE_NOT_FOUND: ")
    assert f"hopline capture import {folders[0]}/*.jsonl CAPTURE" in result.errors
    assert not (tmp_path / "tables").exists()


def test_tables_are_no_capture(here, folders, tmp_path):
    here("pipeline", "run", *folders)
    result = here("pipeline", "run", folders[1], str(tmp_path / "more"))
    assert (result.code, result.lines) == (2, [])
    assert "is a folder of tables, and no capture" in result.errors


def test_tables_need_a_folder_of_their_own(here, folders, tmp_path):
    assert here("pipeline", "run", folders[0], folders[0]).code == 2
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text").write_text("")
    result = here("pipeline", "run", folders[0], str(tmp_path / "thesis"))
    assert result.code == 2
    assert "TABLES_NOT_OURS" in result.errors


@pytest.mark.parametrize(
    ("begun", "later", "said"),
    [
        (["--v3-ttl", "ticks"], ["--v3-ttl", "ms"], "begun with --v3-ttl ticks, and cannot go on with --v3-ttl ms"),
        ([], ["--reach", "90m"], "begun with --reach 6h, and cannot go on with --reach 90m"),
        (["--reach", "45s"], ["--reach", "0s"], "begun with --reach 45s, and cannot go on with --reach 0h"),
        ([], ["--bodies"], "begun without --bodies, and cannot go on with --bodies"),
    ],
)
def test_tables_keep_their_terms(here, folders, begun, later, said):
    assert here("pipeline", "run", *folders, *begun).code == 0
    result = here("pipeline", "run", *folders, *later)
    assert result.code == 2
    assert result.errors == f"hopline: TABLES_OTHER_TERMS: these tables were {said}: name another folder for such tables\n"
    assert here("pipeline", "run", *folders).code == 0


def test_what_goes_wrong_later_is_a_failed_run(here, folders, tmp_path):
    here("pipeline", "run", *folders)
    (tmp_path / "tables" / "_hopline" / "state.json").write_text("{")
    result = here("pipeline", "run", *folders)
    assert result.code == 1
    assert result.errors.startswith("hopline: TABLES_BAD_STATE: ")
    assert "state.json" in result.errors
    assert "restore the folder _hopline from a copy" in result.errors


def test_an_empty_capture(here, folders):
    (answer,) = here("pipeline", "run", *folders).lines
    assert (answer["ok"], answer["changed"], answer["read"]) == (True, True, 0)
    assert answer["tables"]["flows"]["empty"].startswith("the capture has no segments")
    (answer,) = here("pipeline", "run", *folders).lines
    assert not answer["changed"]


def test_a_stream_of_nothing_ends_when_drained(here, folders):
    (answer,) = here("pipeline", "stream", *folders, "--until-drained").lines
    assert (answer["mode"], answer["read"]) == ("stream", 0)
    (answer,) = here("pipeline", "stream", *folders, "--until-drained").lines
    assert (answer["mode"], answer["changed"]) == ("stream", False)


def test_a_stream_that_is_drained_says_to_a_person_in_one_line_that_nothing_was_new(here, folders, monkeypatch):
    here("pipeline", "stream", *folders, "--until-drained")
    said = []
    monkeypatch.setattr("hopline.cli.pipeline.put", lambda answer, show, **_: said.extend(shown(answer, show)))
    here("pipeline", "stream", *folders, "--until-drained")
    assert said == ["nothing new; the tables are as they were"]


def test_a_capture_that_goes_away_while_a_stream_runs_is_a_failed_run(here, folders, monkeypatch):
    monkeypatch.setattr("hopline.cli.pipeline.put", lambda *_, **__: shutil.rmtree(folders[0]))  # after the first batch
    result = here("pipeline", "stream", *folders, "--every", "0.1")
    assert (result.code, result.lines) == (1, [])
    assert result.errors.startswith("hopline: CAPTURE_NOT_FOUND: ")
    assert here("pipeline", "stream", *folders, "--every", "0.1").code == 2  # it is not there at the start


def test_without_pyspark_it_says_what_to_type(here, folders, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("hopline.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = here("pipeline", "run", *folders)
    assert result.code == 2
    assert "pip install 'hopline[spark]'" in result.errors


def shown(answer, show=_show):
    console = Console(file=StringIO(), width=120, highlight=False)
    show(console, answer)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_to_a_person():
    tables = {
        "messages": {"written": 1719, "rows": 2000, "empty": None, "is_behind": False},
        "hops": {"written": 0, "rows": 317, "empty": None, "is_behind": True},
        "expiries": {"written": 0, "rows": 0, "empty": "no message has a TTL", "is_behind": False},
    }
    answer = {"changed": True, "read": 1720, "rejected": 1, "segments": 1, "seconds": 21.34, "tables": tables}
    assert shown(answer) == [
        "1720 records read of 1 segment in 21.3 s, 1 of them no messages (see rejects)",
        "table written rows",
        "messages 1719 2000",
        "hops 0 317 not up to date: it was left out by --only",
        "expiries 0 0 no message has a TTL",
    ]
    assert shown(answer | {"changed": False})[0] == "nothing new; the tables are as they were"


def test_segments_that_were_gone_are_named_to_a_person():
    answer = {"changed": True, "read": 1, "rejected": 0, "segments": 1, "seconds": 1.0, "tables": {}}
    assert shown(answer | {"gone": ["a"]})[1] == "1 segment was gone before it was read: a"
    many = ["a", "b", "c", "d", "e"]
    assert shown(answer | {"gone": many})[1] == "5 segments were gone before they were read: a, b, c and 2 more"


def test_segments_that_stop_before_their_end_are_named_to_a_person():
    answer = {"changed": False, "tables": {}, "unfinished": {"a": "it is empty"}}
    assert shown(answer)[1] == "1 segment stops before its end: a (it is empty); the rest is taken when it comes"
    answer["unfinished"]["b"] = "its end mark is missing"
    assert shown(answer)[1].startswith("2 segments stop before their ends: a (it is empty), b (its end mark is missing);")


def test_a_person_hears_that_signatures_were_not_checked():
    answer = {"changed": True, "read": 1, "rejected": 0, "segments": 1, "seconds": 1.0, "tables": {}}
    assert shown(answer | {"unchecked": 0})[1:] == shown(answer)[1:]
    _, first, second, *_ = shown(answer | {"unchecked": 222})
    assert first == "222 signatures were not checked, as no keys were given. They are judged only when a message is taken:"
    assert second == "to have these judged, make the tables anew with --keys"
    assert shown(answer | {"unchecked": 1})[1].startswith("1 signature was not checked, ")


def test_a_segment_that_stops_before_its_end_is_named_also_if_nothing_is_new(here, folders, tmp_path):
    name = "20261115T231501123456Z-N1-9f86d081-000001"
    (tmp_path / "captures" / f"{name}.arrows").touch()
    for changed in (True, False):
        result = here("pipeline", "run", *folders)
        (answer,) = result.lines
        assert (result.code, answer["changed"], answer["unfinished"]) == (0, changed, {name: "it is empty"})


def test_one_reason_for_all_tables_is_said_once():
    nothing = {"written": 0, "rows": 0, "empty": "the capture has no segments", "is_behind": False}
    tables = {"messages": nothing, "flows": nothing}
    answer = {"changed": True, "read": 0, "rejected": 0, "segments": 0, "seconds": 0.0, "tables": tables}
    assert shown(answer) == [
        "0 records read of 0 segments in 0.0 s",
        "the capture has no segments",
        "table written rows",
        "messages 0 0",
        "flows 0 0",
    ]


def test_spark_that_does_not_start_is_a_failed_run(here, tmp_path, monkeypatch):
    story = Story()
    story.ask(b"flow", 0)
    story.write(tmp_path / "captures")

    def no_java(*_args, **_more):
        raise SparkError("SPARK_NO_JAVA", "Spark needs Java")

    monkeypatch.setattr("hopline.spark.session.spark_session", no_java)
    result = here("pipeline", "run", str(tmp_path / "captures"), str(tmp_path / "tables"), "--json")
    assert (result.code, result.lines) == (1, [])
    assert result.errors == "hopline: SPARK_NO_JAVA: Spark needs Java\n"
    assert not (tmp_path / "tables" / "_hopline" / "state.json").exists()


def test_a_log_has_a_line_of_a_long_run_now_and_then(here, tmp_path, monkeypatch):
    story = Story()
    story.ask(b"flow", 0)
    story.write(tmp_path / "captures")

    def slow_java(*_args, **_more):
        end = time.monotonic() + 10
        while b"starting Spark\n" not in sys.stderr.buffer.getvalue() and time.monotonic() < end:
            pass
        raise SparkError("SPARK_NO_JAVA", "Spark needs Java")

    monkeypatch.setattr("hopline.cli.pipeline._LINE_S", 0.01)
    monkeypatch.setattr("hopline.spark.session.spark_session", slow_java)
    result = here("pipeline", "run", str(tmp_path / "captures"), str(tmp_path / "tables"))
    lines = result.errors.splitlines()
    assert lines[-1] == "hopline: SPARK_NO_JAVA: Spark needs Java"
    assert "hopline: starting Spark" in lines
