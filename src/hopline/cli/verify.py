"""`hopline verify`: are the signatures good?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hopline.cli.lines import Answer, FileArgument, JsonOption, answer_lines, read_frames, usage_error
from hopline.errors import HoplineError, InputError
from hopline.security import Algorithm, Domain, Keyring, Scheme, Verdict, read_keys
from hopline.wire import decode

if TYPE_CHECKING:
    from rich.console import Console

_GOOD = (Verdict.VALID, Verdict.UNSIGNED)

KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="DOMAIN=HEX", help="A domain and its key in hex; again for more keys."),
]
KeysOption = Annotated[Path | None, typer.Option("--keys", metavar="FILE", help="A key file (TOML, see docs/security.md).")]


def run(
    file: FileArgument = "-",
    key: KeyOption = None,
    keys: KeysOption = None,
    scheme: Annotated[
        Scheme | None,
        typer.Option("--scheme", help="Overrule the scheme: kino for --key; what the file says, or full, for --keys."),
    ] = None,
    algorithm: Annotated[
        Algorithm | None,
        typer.Option("--algorithm", help="Overrule the algorithm; by the size of the signature if not."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the signatures of messages against keys.

    Each input line is JSON with `frames`. The answer is valid, invalid, unsigned or unknown-domain; age and repetition
    are not judged. Exit code 1 if anything is invalid, of an unknown domain or no message at all.

    Example:  hopline verify capture.jsonl --key orders=6b6579
    """
    if scheme == "full" and algorithm == "md5":
        raise usage_error("the scheme full is sha256, not md5")
    try:
        keyring = Keyring(domains_of(key or [], keys))
    except HoplineError as error:
        raise usage_error(str(error)) from None
    all_valid = True

    def answer(line: bytes) -> Answer:
        nonlocal all_valid
        # In ticks every TTL of v3 can be read, and a verdict does not depend on it.
        verdict = keyring.verify(decode(read_frames(line), v3_ttl="ticks"), scheme=scheme, algorithm=algorithm)
        all_valid = all_valid and verdict in _GOOD
        return {"ok": True, "signature": verdict.value}

    all_good = answer_lines(file, answer, _show, as_json=as_json)
    if not (all_good and all_valid):
        raise typer.Exit(1)


def domains_of(options: list[str], file: Path | None) -> list[Domain]:
    """The domains of the key file, and those of the options: a key for a domain of the file is one more of its keys.

    Raises:
        HoplineError: the file cannot be read, or one of them is not as it must be.
    """
    domains: dict[str, Domain] = {}
    if file is not None:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("INPUT_BAD_KEY", f"cannot read {file}: {getattr(error, 'strerror', error)}") from None
        domains = {domain.name: domain for domain in read_keys(text)}
    if options:
        typer.echo("warning: a key on the command line can be seen in the process list; --keys FILE is safer", err=True)
    for option in options:
        # A domain may hold a `=`, hex may not.
        name, separator, text = option.rpartition("=")
        if not separator or not name:  # an empty name is a slip: nobody signs in it
            raise InputError("INPUT_BAD_KEY", "--key must be DOMAIN=HEX")
        try:
            new = bytes.fromhex(text)
        except ValueError:
            # Neither part is shown: who mixed them up has written the key into the other one.
            raise InputError("INPUT_BAD_KEY", "--key must be DOMAIN=HEX, and what follows the last = is not hex") from None
        old = domains.get(name)
        if old is None:
            domains[name] = Domain(name, keys=(new,), scheme="kino")
        else:
            domains[name] = Domain(
                name, (*old.keys, new), old.scheme, old.algorithm, old.identities, old.unsigned, old.is_unsigned
            )
    return list(domains.values())


def _show(console: "Console", number: int, result: Answer) -> None:
    verdict = result["signature"]
    style = {"valid": "green", "unsigned": "yellow"}.get(verdict, "bold red")
    console.print(f"line {number}: [{style}]{verdict}[/{style}]")
