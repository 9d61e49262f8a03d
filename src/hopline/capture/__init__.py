"""Capture: what a network did, as files, and how to look at it. Needs the extra `columnar`: numpy and pyarrow.

folder      where: local, or anything pyarrow opens
stream      bytes: Arrow messages, each with its checksum
record      columns: one sighting a row
segment     one file: its name, how it is written; reading: how it is read, whatever state it is in
store       all files as one; check: what of it is whole; timeline: all of it in the order of time
writer      records into segments, rolled, kept, counted; tap: a node's messages to a writer, off the event loop
choice      which messages a tap records; body: how much of each
jsonl       other tools' JSON lines in and out; line: one of them; coverage: what of a file was imported before
"""

from hopline.capture.check import Report
from hopline.capture.jsonl import Import, export_lines
from hopline.capture.reading import Problem, Reading
from hopline.capture.record import DIRECTIONS, RECORD_SCHEMA, Records, key_of
from hopline.capture.segment import Segment
from hopline.capture.store import Capture, open_capture
from hopline.capture.tap import DEFAULT_POINTS, POINTS, CaptureTap, TapStatistics
from hopline.capture.writer import CaptureWriter, Limits

__all__ = [
    "DEFAULT_POINTS",
    "DIRECTIONS",
    "POINTS",
    "RECORD_SCHEMA",
    "Capture",
    "CaptureTap",
    "CaptureWriter",
    "Import",
    "Limits",
    "Problem",
    "Reading",
    "Records",
    "Report",
    "Segment",
    "TapStatistics",
    "export_lines",
    "key_of",
    "open_capture",
]
