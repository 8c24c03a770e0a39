// Formats of numbers, durations and costs: the same as in divebook/text/format.py (test/cases/texts.json).

/** Return a whole number with at least two digits. */
export function two(part: number): string {
  return String(part).padStart(2, "0");
}

/**
 * Return a number with a fixed number of decimals. Halfway between two results it is the even one, as in Python: `toFixed`
 * would return the larger one.
 */
export function fixed(value: number, decimals: number): string {
  // Halfway, value * 10^decimals is n + 1/2. Such a value is an odd multiple of 1 / 2^(decimals + 1), which is exact in
  // binary. The test 1.15 * 10 = 11.5 would be wrong: 1.15 is stored as a number below 1.15.
  const isHalfway = Math.abs(value * 2 ** (decimals + 1)) % 2 === 1;
  if (!isHalfway) return value.toFixed(decimals);
  const factor = 10 ** decimals;
  return ((2 * Math.round((value * factor) / 2)) / factor).toFixed(decimals);
}

/** Return a duration in microseconds as text, in a suitable unit. */
export function duration(micros: number): string {
  const seconds = micros / 1e6;
  if (seconds < 0.9995) return `${fixed(seconds * 1000, 0)} ms`;
  if (seconds < 59.95) return `${fixed(seconds, 1)} s`;
  const whole = Number(fixed(seconds, 0));
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
}

/** Return the label of a moment on an axis whose ticks are `distance` microseconds apart. */
export function tickLabel(micros: number, distance: number): string {
  if (micros === 0) return "0";
  const seconds = micros / 1e6;
  if (distance < 1e6) {
    const digits = Math.min(6, Math.max(1, Math.ceil(-Math.log10(distance / 1e6))));
    return seconds < 60 ? `${seconds.toFixed(digits)} s` : `${clock(Math.floor(seconds))}${(seconds % 1).toFixed(digits).slice(1)}`;
  }
  return seconds < 60 ? `${Math.round(seconds)} s` : clock(Math.round(seconds));
}

function clock(seconds: number): string {
  const minutes = Math.floor(seconds / 60);
  const rest = two(seconds % 60);
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${rest}`;
}

/** Return a whole number with thousands separators. */
export function formatCount(count: number): string {
  return count.toLocaleString("en");
}

/** Return a count with its noun. */
export function plural(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Return a cost in dollars: two decimals; below 10 cents four, or as many as show two digits. */
export function dollars(cost: number): string {
  let places = cost > 0 && cost < 0.1 ? 4 : 2;
  while (places >= 4 && places < 9 && cost * 10 ** (places - 1) < 1) places += 1;
  const [whole = "", decimals = ""] = fixed(cost, places).split(".");
  return `$${formatCount(Number(whole))}.${decimals}`;
}

/** Return a cost in dollars; an empty string if it is zero or unknown. */
export function price(cost: number | null): string {
  return cost === null || cost === 0 ? "" : dollars(cost);
}

/** Return a round distance between ticks in microseconds, about `pixels` pixels. */
export function tickDistance(perPixel: number, pixels = 90): number {
  const least = Math.max(perPixel * pixels, 1);
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400].map((s) => s * 1e6);
  const step = steps.find((candidate) => candidate >= least);
  if (step !== undefined && least > 5e5) return step;
  const unit = 10 ** Math.floor(Math.log10(least));
  return ([1, 2, 5, 10].find((part) => part * unit >= least) ?? 10) * unit;
}
