"""`hopline keys`: fresh keys, ready to paste into hopline.toml."""

import json
import re
from typing import Annotated, Final

import typer

from hopline.cli.terminal import complaint
from hopline.security import Scheme

_KEY_BYTES: Final = 32
"""As long as the output of SHA-256: a longer HMAC key adds nothing."""

app = typer.Typer(name="keys", help="Make keys.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _keys() -> None:
    """Make keys for domains and for encrypted connections."""


@app.command("new")
def new(
    curve: Annotated[bool, typer.Option("--curve", help="A key pair for encrypted connections.")] = False,
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="The domain; main by default.")] = None,
    scheme: Annotated[
        Scheme | None, typer.Option("--scheme", help="full by default; kino for nodes of the reference.")
    ] = None,
) -> None:
    """Print a new key as a piece of TOML for hopline.toml.

    The key is printed and kept nowhere else. A file with keys is for its owner alone: chmod 600 hopline.toml.

    Example:  hopline keys new --domain orders >> hopline.toml
    """
    if not curve:
        typer.echo(_domain("main" if domain is None else domain, scheme or "full"), nl=False)
    elif domain is None and scheme is None:
        typer.echo(_curve(), nl=False)
    else:
        raise complaint("--curve makes keys of connections, which have no domain and no scheme")


def _domain(name: str, scheme: str) -> str:
    import secrets

    if not name or not name.isprintable():
        raise complaint("a domain has a name that can be printed")
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
    return (
        f"[domains.{key}]\n"
        f'keys = ["{secrets.token_hex(_KEY_BYTES)}"]  # the first signs, each is accepted\n'
        f'scheme = "{scheme}"\n'
        "# Add yours. `hopline status` and `hopline routes` need HOPLINE.STATUS, HOPLINE.STATUSREPORT,\n"
        "# HOPLINE.ROUTES and HOPLINE.ROUTESREPORT.\n"
        "identities = []\n"
    )


def _curve() -> str:
    import zmq

    if not zmq.has("curve"):
        raise complaint("libzmq has no CURVE here; `hopline doctor` says what to do")
    public_key, secret_key = zmq.curve_keypair()
    return (
        "[node.curve]\n"
        f'public_key = "{public_key.decode()}"  # for the others: in their allowed_keys and server_keys\n'
        f'secret_key = "{secret_key.decode()}"  # for nobody else\n'
        "allowed_keys = []  # public keys of who may connect to this node\n"
        "[node.curve.server_keys]  # public keys of the nodes that this one connects to\n"
        '# "tcp://127.0.0.1:5102" = "..."\n'
    )
