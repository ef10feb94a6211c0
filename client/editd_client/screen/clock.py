"""The time of the screen: the present, times of day and ages."""

from __future__ import annotations

from datetime import UTC, datetime

UNITS = ((86_400 * 7, "w"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))  # the largest that fits


class ScreenClock:
    """The machine's clock, in its own time zone. A test has a fixed one."""

    def now(self) -> datetime:
        return datetime.now(UTC).astimezone()

    def local(self, time: datetime) -> datetime:
        """Return a time in the local zone."""
        return time.astimezone()

    def time_of_day(self, time: datetime) -> str:
        """Return 8 columns: the time of day, or for another day the date."""
        local, now = self.local(time), self.now()
        if local.date() == now.date():
            return f"{local:%H:%M:%S}"
        return f"{local:%d %b  }" if local.year == now.year else f"{local:%b %Y}"

    def age(self, time: datetime | None) -> str:
        """Return an age such as `40s` or `3h`; nothing without a time."""
        if time is None:
            return ""
        seconds = max(0, int((self.now() - self.local(time)).total_seconds()))
        length, unit = next((one for one in UNITS if seconds >= one[0]), UNITS[-1])
        return f"{seconds // length}{unit}"
