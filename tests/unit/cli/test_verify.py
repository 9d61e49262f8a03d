import msgspec

from hopline.security import Domain, Keyring
from hopline.wire import Message, encode
from tests.unit.cli.conftest import hexed

MESSAGE = Message(identity=b"HELLO", version=1, body=b"hi", domain="a=b")


def signed(**settings):
    ring = Keyring([Domain("a=b", keys=(b"key",), **settings)])
    return ring.sign(MESSAGE, now_ns=1, nonce=bytes(16))


KINO = signed(scheme="kino")
FORGED = msgspec.structs.replace(KINO, body=b"ho")
OTHER = msgspec.structs.replace(KINO, domain="other")


def line(message, *layout):
    return hexed(encode(message, *layout))


def verdicts(result):
    return [item.get("signature", "rejected") for item in result.lines]


def test_verdicts_and_exit_codes(hopline):
    key = ("--key", "a=b=6b6579")
    result = hopline("verify", *key, objects=[line(KINO), line(signed(scheme="kino", algorithm="sha256")), line(MESSAGE)])
    assert (verdicts(result), result.code) == (["valid", "valid", "unsigned"], 0)
    assert "process list" in result.errors
    for bad, verdict in ((line(FORGED), "invalid"), (line(OTHER), "unknown-domain"), ({"frames": []}, "rejected")):
        result = hopline("verify", *key, objects=[line(KINO), bad])
        assert (verdicts(result), result.code) == (["valid", verdict], 1)


def test_an_old_and_a_new_key(hopline):
    result = hopline("verify", "--key", "a=b=00", "--key", "a=b=6B6579", objects=[line(KINO)])
    assert (verdicts(result), result.code) == (["valid"], 0)


def test_scheme_and_algorithm_overrule(hopline):
    key = ("--key", "a=b=6b6579")
    assert verdicts(hopline("verify", *key, "--algorithm", "sha256", objects=[line(KINO)])) == ["invalid"]
    full = line(signed())
    assert verdicts(hopline("verify", *key, objects=[full])) == ["invalid"]
    assert verdicts(hopline("verify", *key, "--scheme", "full", objects=[full])) == ["valid"]


def test_text_versions_of_old_v4(hopline):
    ring = Keyring([Domain("a=b", keys=(b"key",), scheme="kino")])
    old = line(ring.sign(MESSAGE, text_version=True), "v4", "text-version")
    assert verdicts(hopline("verify", "--key", "a=b=6b6579", objects=[old])) == ["valid"]


def test_a_key_file(hopline, tmp_path):
    path = tmp_path / "keys.toml"
    path.write_text('[domains."a=b"]\nkeys = ["6b6579"]\n')
    result = hopline("verify", "--keys", str(path), objects=[line(signed())])
    assert (verdicts(result), result.code, result.errors) == (["valid"], 0, "")
    more = hopline("verify", "--keys", str(path), "--key", "a=b=00", objects=[line(signed())])
    assert verdicts(more) == ["valid"]


def test_wrong_usage_is_exit_2_and_shows_no_key(hopline, tmp_path):
    path = tmp_path / "keys.toml"
    path.write_text('[domains.d]\nkeys = ["5ecre7x"]\n')
    for arguments in (
        ("--key", "nothing"),
        ("--key", "dom=5ecre7x"),
        ("--key", "dom="),
        ("--key", "=6b"),
        ("--keys", str(path)),
        ("--keys", str(tmp_path / "none")),
        ("--keys", str(tmp_path)),
        ("--scheme", "rot13"),
        ("--algorithm", "crc"),
        ("--scheme", "full", "--algorithm", "md5"),
        ("--key", "5ecre7=dom"),
    ):
        result = hopline("verify", *arguments)
        assert result.code == 2, arguments
        assert "Traceback" not in result.errors
        assert "5ecre7" not in result.errors


def test_every_ttl_of_v3_can_be_judged(hopline):
    old = hexed(encode(Message(identity=b"HELLO", ttl_ticks=2**63 - 1), "v3", v3_ttl="ticks"))
    assert verdicts(hopline("verify", objects=[old])) == ["unsigned"]
