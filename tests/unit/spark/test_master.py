"""Where Spark runs: what can be said of it before Spark is started."""

import socket

import pytest

from hopline.errors import SparkError
from hopline.spark.master import ask_master, check_master


@pytest.fixture
def listening():
    """A port that somebody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def deserted():
    """A port that nobody listens at: it is taken, so that nobody comes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[1]",
        "local[16]",
        "local[*]",
        "local[2,3]",
        "local[*, 4]",
        "local-cluster[2,1,1024]",
        "local-cluster[2, 1, 1024]",
        "spark://host:7077",
        "spark://10.0.0.1:7077,other.example:7078",
        "spark://[::1]:7077",
        "yarn",
        "k8s://https://host:6443",
        "k8s://host",
    ],
)
def test_words_that_spark_knows(master):
    check_master(master)


@pytest.mark.parametrize(
    "master",
    [
        "",
        "nonsense",
        "local[x]",
        "local[]",
        "local[0]",
        "local[2",
        "local[2,0]",
        "local 2",
        "Local",
        "local-cluster[2]",
        "spark://",
        "spark://host",
        "spark://host:",
        "spark://host:port",
        "spark://host:99999",
        "spark://host:7077/",
        "spark://host:7077,",
        "spark://me@host:7077",
        "spark://host:7077,spark://other:7077",
        "host:7077",
        "http://host:7077",
        "yarn://host",
        "k8s://",
        "mesos://host:5050",
    ],
)
def test_other_words(master):
    with pytest.raises(SparkError, match="is no master of Spark: write local") as caught:
        check_master(master)
    assert caught.value.code == "SPARK_BAD_MASTER"


def test_a_master_that_takes_a_connection(listening):
    ask_master(f"spark://127.0.0.1:{listening}")


def test_one_of_several_is_enough(listening, deserted):
    ask_master(f"spark://127.0.0.1:{deserted},127.0.0.1:{listening}")


def test_nobody_there(deserted):
    place = f"spark://127.0.0.1:{deserted}"
    with pytest.raises(SparkError) as caught:
        ask_master(place)
    assert caught.value.code == "SPARK_CANNOT_START"
    assert str(caught.value) == f"no Spark master answers at {place}: Connection refused"
    with pytest.raises(SparkError, match=rf"at {place}: Connection refused; {place}: Connection refused"):
        ask_master(f"{place},127.0.0.1:{deserted}")


def test_a_host_without_an_address():
    with pytest.raises(SparkError, match=r"no Spark master answers at spark://nowhere\.invalid:7077: \S"):
        ask_master("spark://nowhere.invalid:7077")


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://nowhere.invalid"])
def test_others_are_not_asked(master):
    ask_master(master)
