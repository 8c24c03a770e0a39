"""Schedules in every time zone, over every change of its clock in some years.

``python -m tests.config.zones [FIRST_YEAR LAST_YEAR]`` compares the due times with what the clock of the zone shows,
minute by minute: each time of a cron expression is due in the first minute in which the clock shows it, or, if the
clock skips it, in the minute in which it is moved.
"""

import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from divebook.config.schedules import latest_due, next_due

MINUTE = timedelta(minutes=1)
CRONS = {
    "30 2 * * *": ({30}, {2}, range(7)),
    "0 12 * * *": ({0}, {12}, range(7)),
    "0 0 * * *": ({0}, {0}, range(7)),
    "*/20 * * * *": ({0, 20, 40}, range(24), range(7)),
    "15 0-3 * * 0,6": ({15}, range(4), {5, 6}),
    "59 23 * * *": ({59}, {23}, range(7)),
}
"""By expression, its minutes, its hours and its weekdays as Python counts them."""


def changes(zone, first, last):
    """Yield the moments, to the minute, at which the clock of a zone is moved in some years."""
    day = datetime(first, 1, 1, tzinfo=UTC)
    while day.year <= last:
        following = day + timedelta(days=1)
        if offset(day, zone) != offset(following, zone):
            before, after = day, following
            while after - before > MINUTE:
                middle = before + MINUTE * ((after - before) // MINUTE // 2)
                before, after = (middle, after) if offset(middle, zone) == offset(day, zone) else (before, middle)
            yield after
        day = following


def offset(moment, zone):
    return moment.astimezone(zone).utcoffset()


def shown(zone, start, minutes):
    """Return, for each time of the wall clock, the first minute in which it is shown or passed over."""
    first, before = {}, None
    for number in range(minutes):
        wall = (start + MINUTE * number).astimezone(zone).replace(tzinfo=None)
        while before is not None and before + MINUTE < wall:
            before += MINUTE
            first.setdefault(before, number)
        first.setdefault(wall, number)
        before = wall if before is None else max(before, wall)
    return first


def expected(first, cron):
    minutes, hours, weekdays = CRONS[cron]
    return sorted(
        {
            number
            for wall, number in first.items()
            if wall.minute in minutes and wall.hour in hours and wall.weekday() in weekdays
        }
    )


def differences(zone, change, looks_every=10):
    """Return what differs around one change, of the next due times and of those that a worker sees."""
    start, minutes = change - timedelta(hours=54), 108 * 60
    first = shown(zone, start, minutes)
    found = []
    for cron in CRONS:
        numbers = expected(first, cron)
        begin = start + timedelta(hours=48)
        wanted = [start + MINUTE * number for number in numbers if start + MINUTE * number > begin]
        now, coming = begin, []
        for _ in wanted:
            now = next_due(cron, zone, now)
            coming.append(now.astimezone(UTC))
        if coming != wanted:
            found.append((cron, "next", wanted, coming))
        near = (change + MINUTE * number for number in (-1, 0, 1, 59, 60, 61))
        for look in (*(begin + MINUTE * number for number in range(0, 13 * 60, looks_every)), *near):
            past = [start + MINUTE * number for number in numbers if start + MINUTE * number <= look]
            latest = latest_due(cron, zone, look.astimezone(zone)).astimezone(UTC)
            if past and latest != past[-1]:
                found.append((cron, f"latest at {look}", past[-1], latest))
    return found


def main(arguments):
    years = tuple(map(int, arguments)) or (2010, 2026)
    seen, count, wrong = set(), 0, 0
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        for change in changes(zone, *years):
            alike = change, offset(change - MINUTE, zone), offset(change, zone)
            if alike in seen:
                continue
            seen.add(alike)
            count += 1
            for difference in differences(zone, change):
                wrong += 1
                sys.stdout.write(f"{name} {change:%Y-%m-%d %H:%MZ}: {difference}\n")
    sys.stdout.write(f"{count} different changes of clocks in {years[0]} to {years[1]}: {wrong} differences\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
