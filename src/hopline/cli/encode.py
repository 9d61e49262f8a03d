"""`hopline encode`: fields in, frames out."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hopline.cli.decode import TtlOption
from hopline.cli.lines import Answer, FileArgument, JsonOption, answer_lines, read_line, usage_error
from hopline.wire import DEFAULT_FORMAT, FORMATS, FormatName, encode
from hopline.wire.fields import extra_from_json, message_from_json

if TYPE_CHECKING:
    from rich.console import Console


class _FieldsLine(msgspec.Struct):
    fields: dict[str, Any]
    format: FormatName | None = None
    variant: str | None = None
    extra: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_FieldsLine)


def run(
    file: FileArgument = "-",
    format: Annotated[FormatName | None, typer.Option("--format", help="Write this format, whatever the line says.")] = None,
    variant: Annotated[
        str | None, typer.Option("--variant", help="Write this variant, whatever the line says (see docs/wire.md).")
    ] = None,
    v3_ttl: TtlOption = "ms",
    as_json: JsonOption = False,
) -> None:
    """Encode messages: the way back from `hopline decode`.

    Each input line is JSON with `fields`, and `format`, `variant` and `extra` if they matter; missing fields are empty.
    Without a format v6 is written. What a line keeps in `extra` belongs to its own format and variant, and is left out
    when another one is asked for.

    Example:  hopline decode old.jsonl | hopline encode --format v6
    """
    _check_variant(format, variant)

    def answer(line: bytes) -> Answer:
        given = read_line(line, _decoder)
        # The layout of the line, and the one that is wanted; what is kept in `extra` fits the former only.
        own_format = given.format or DEFAULT_FORMAT
        own_variant = given.variant or FORMATS[own_format].DEFAULT_VARIANT
        name = format or own_format
        wanted = variant or (own_variant if variant is None and name == own_format else FORMATS[name].DEFAULT_VARIANT)
        extra = extra_from_json(given.extra) if (name, wanted) == (own_format, own_variant) else None
        frames = encode(message_from_json(given.fields), name, wanted, extra, v3_ttl=v3_ttl)
        return {"ok": True, "frames": [frame.hex() for frame in frames]}

    if not answer_lines(file, answer, _show, as_json=as_json):
        raise typer.Exit(1)


def _check_variant(format: str | None, variant: str | None) -> None:
    """A variant that no line could be written in is wrong usage, not a fault of each line."""
    known = {name for module in ([FORMATS[format]] if format else FORMATS.values()) for name in module.VARIANTS}
    if variant and variant not in known:
        raise usage_error(f"no variant {variant!r}; known are {', '.join(map(repr, sorted(known)))}")


def _show(console: "Console", number: int, result: Answer) -> None:
    console.print(f"line {number}", style="bold")
    for i, frame in enumerate(result["frames"]):
        console.print(f"  {i:3} {frame or '(empty)'}", markup=False)
