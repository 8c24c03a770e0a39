// Formats of moments in the reader's time zone. Durations are in format.ts.

import type { Micros } from "../protocol";
import { duration, two } from "./format";

const DAY_MS = 86_400_000;
const MINUTE = 60_000_000;
const HOUR = 60 * MINUTE;
const DAYS_FROM = 48 * HOUR; // longer times are stated in days
const TO_MINUTES = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" } as const;
const TO_MILLISECONDS = { ...TO_MINUTES, second: "2-digit", fractionalSecondDigits: 3 } as const;

/** Return a moment in the reader's time zone, with the zone. The day is included unless it is today. */
export function moment(us: Micros, now: Date = new Date()): string {
  return formatMoment(us, now, TO_MINUTES);
}

/** Return a moment with milliseconds, for events in quick succession. */
export function exactMoment(us: Micros, now: Date = new Date()): string {
  return formatMoment(us, now, TO_MILLISECONDS);
}

function formatMoment(us: Micros, now: Date, time: Intl.DateTimeFormatOptions): string {
  const date = new Date(us / 1000);
  const isToday = date.toDateString() === now.toDateString();
  return date.toLocaleString("en-GB", isToday ? time : { ...dayFormat(date, now), ...time });
}

function dayFormat(date: Date, now: Date): Intl.DateTimeFormatOptions {
  const isThisYear = date.getFullYear() === now.getFullYear();
  return { weekday: "short", day: "numeric", month: "short", ...(isThisYear ? {} : { year: "numeric" }) };
}

/** Return a time of day without the zone, which the list states once. */
export function clockOf(us: Micros): string {
  const at = new Date(us / 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** Return the day of a moment: today, yesterday or the date. */
export function dayOf(us: Micros, now: Micros): string {
  const day = midnight(us);
  const today = midnight(now);
  if (day === today) return "today";
  if (Math.round((today - day) / DAY_MS) === 1) return "yesterday";
  return new Intl.DateTimeFormat("en-GB", dayFormat(new Date(day), new Date(today))).format(day).replace(",", "");
}

function midnight(us: Micros): number {
  return new Date(us / 1000).setHours(0, 0, 0, 0);
}

/** Return the name of the reader's time zone. */
export function zone(): string {
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts();
  return parts.find(({ type }) => type === "timeZoneName")?.value ?? "local time";
}

/** Return the time since a moment in whole minutes, so that the text does not change while a person reads. */
export function ago(us: Micros): string {
  if (us < MINUTE) return "just now";
  if (us >= DAYS_FROM) return `${Math.floor(us / HOUR / 24)} days ago`;
  return us < HOUR ? `${Math.floor(us / MINUTE)} min ago` : `${Math.floor(us / HOUR)} h ago`;
}

/** Return a remaining time, in whole seconds if it is short. */
export function countdown(us: Micros): string {
  if (us >= DAYS_FROM) return `${Math.floor(us / HOUR / 24)} days`;
  const seconds = Math.ceil(us / 1_000_000);
  return seconds < 60 ? `${seconds} s` : duration(seconds * 1_000_000);
}
