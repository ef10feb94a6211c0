"""Every limit of the wire, each with its reason. The reply to `hello` has them.

Lengths are checked before memory is reserved for them, so that five bytes that announce four
thousand million elements cost five bytes.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

KIB = 1024
MIB = 1024 * KIB


class WireLimits(Struct, frozen=True):
    """The limits of one client on the daemon's memory and time."""

    message_bytes_max: int = 64 * MIB
    """A file of 16 MiB, the largest that a scan takes in, is 22 MiB as base64. Two and a half fit."""

    header_bytes_max: int = 4 * KIB
    """The header of a JSON message is one line of some 25 bytes; LSP knows only one other."""

    nesting_max: int = 32
    """The deepest message is 8 deep (a position in a text edit in an apply); the rest is for `client`."""

    array_length_max: int = 131_072
    """Paths of one `stat`, edits of one `apply`: a workspace of 100,000 files in one request."""

    map_length_max: int = 1_024
    """No message has more than 20 keys; `client` in hello may be any map."""

    values_max: int = 1_000_000
    """Elements of all arrays and maps of a message: 100,000 edits have 800,000. An empty array is one byte
    on the wire and 64 in memory: this is 64 MiB of them, where a message would hold 4 GiB."""

    connections_max: int = 256
    """Tens of agents and editors, and a shell loop run wild, on a quarter of 1,024 descriptors."""

    requests_waiting_max: int = 128
    """Of one connection, unanswered; its reading then pauses. Enough to fill every group commit
    (64 records a sync already cost a hundredth of a safe save each, measured)."""

    incoming_bytes_max: int = 512 * MIB
    """Of all connections together, in incomplete messages: eight of full length. Above it, the
    connection with most of it is closed."""

    requests_bytes_max: int = 512 * MIB
    """Of all connections together, in unanswered requests of over 64 KiB each. A connection with
    `message_bytes_max` of them is not read until one is answered."""

    outgoing_bytes_pause: int = MIB
    """Unread answers past this pause the reading of more requests, and events are left out, until the
    client has read: some 3,000 events, or one of 10,000 files."""

    outgoing_bytes_max: int = 64 * MIB
    """A client with more than this unread is closed at the next answer or event."""

    subscriptions_max: int = 32
    """Of one connection: an editor has one for each window, and each costs a little with every edit."""

    notify_bytes_max: int = 64 * KIB
    """Of a subscription's `notify`, in its encoding: it is kept, and goes out with every event."""

    name_length_max: int = 1_000
    """Of an actor, a session, a request id, a transaction, in characters: lines of a commit's message."""

    message_length_max: int = 100_000
    """Of a transaction's `message`, in characters: it is kept for good, and is in every `log`."""

    text_length_max: int = 500
    """Of a client's own words in an error, in characters."""


LIMITS = WireLimits()

DESCRIPTORS_KEPT = 128
"""Descriptors of the process that are not for connections: some 25 are always open, publishing a
transaction takes up to 64 folders, a child process six."""


def within_descriptors(limits: WireLimits, descriptors_max: int) -> WireLimits:
    """Return the limits for a process with so many descriptors, so that clients leave enough for an edit.

    A refused client has one for a moment, too, and there may be as many of those. A negative number
    (RLIM_INFINITY) is no limit.
    """
    if descriptors_max < 0:
        return limits
    room = max(8, (descriptors_max - DESCRIPTORS_KEPT) // 2)
    return replace(limits, connections_max=min(limits.connections_max, room))


LARGE_VALUES = 10_000
"""Elements of a message whose decoding takes some 10 ms: more are decoded off the event loop."""

LARGE_JSON_BYTES = MIB
"""Likewise, of JSON. MessagePack is decoded piece by piece as it comes in."""

ANSWER_BYTES_MAX = 1024 * MIB
"""The largest answer that a client accepts: a diff or a log may be larger than any request."""
