import tomllib

import pytest

from hopline.assembly import read_settings


def _printed(result):
    assert (result.code, result.errors) == (0, "")
    return "\n".join(result.lines)


def test_a_domain_key_is_fresh_and_can_be_read(hopline, tmp_path):
    keys = set()
    for _ in range(2):
        text = _printed(hopline("keys", "new"))
        (tmp_path / "hopline.toml").write_text(text)
        (domain,) = read_settings(tmp_path / "hopline.toml").domains
        assert (domain.name, domain.scheme) == ("main", "full")
        assert [len(key) for key in domain.keys] == [32]
        keys.add(domain.keys)
    assert len(keys) == 2


@pytest.mark.parametrize("name", ["orders", "a.b c", 'a"b\\', "домен", "😀"])
def test_any_name_and_scheme(hopline, tmp_path, name):
    (tmp_path / "hopline.toml").write_text(_printed(hopline("keys", "new", "--domain", name, "--scheme", "kino")), "utf-8")
    (domain,) = read_settings(tmp_path / "hopline.toml").domains
    assert (domain.name, domain.scheme) == (name, "kino")


def test_curve_keys(hopline, tmp_path):
    text = _printed(hopline("keys", "new", "--curve"))
    (tmp_path / "hopline.toml").write_text(text)
    curve = read_settings(tmp_path / "hopline.toml").node.curve
    assert len(curve.public_key) == len(curve.secret_key) == 40
    assert curve.public_key != curve.secret_key
    assert tomllib.loads(text).keys() == {"node"}


def test_both_fit_into_one_file(hopline, tmp_path):
    text = _printed(hopline("keys", "new", "--curve")) + "\n" + _printed(hopline("keys", "new", "--domain", "a"))
    (tmp_path / "hopline.toml").write_text(text)
    settings = read_settings(tmp_path / "hopline.toml")
    assert settings.node.curve is not None
    assert len(settings.domains) == 1


@pytest.mark.parametrize(
    "options", [["--curve", "--domain", "a"], ["--domain", ""], ["--domain", "a\nb"], ["--scheme", "x"]]
)
def test_wrong_usage(hopline, options):
    result = hopline("keys", "new", *options)
    assert (result.code, result.lines) == (2, [])
    assert "Traceback" not in result.errors
