// Consumption of a run. The facts are always in the same order, each with its limit if there is one.

import type { Doing, Gauge, Header, Spender } from "../protocol";
import { h } from "../shared/dom";
import { dollars, duration, plural, price } from "../shared/format";
import type { Model } from "../shared/model";

const NEAR_LIMIT = 0.8; // share of a limit from which a warning sign is shown
const GAUGES_OF_FACTS = ["cost", "model calls", "tokens"]; // gauges that are shown together with a fact

interface Fact {
  name: string;
  value: string;
  gauge?: Gauge | undefined;
  title?: string;
}

/** Make the facts; `update` shows the current values. */
export function facts(model: Model): { element: HTMLElement; update: () => void } {
  const list = h("dl", { class: "db-facts" });
  const spenders = h("div", { class: "db-faint db-spenders", hidden: true });
  let drawnKey = "";

  function update(): void {
    if (model.header === null) return;
    const rows = factsOf(model.header, model.originUs + model.clockNow());
    const spenderList = model.header.spenders.length < 2 ? "" : model.header.spenders.map(spenderText).join(" · ");
    if (JSON.stringify([rows, spenderList]) === drawnKey) return;
    drawnKey = JSON.stringify([rows, spenderList]);
    list.replaceChildren(...rows.map(factRow));
    spenders.textContent = spenderList;
    spenders.hidden = spenderList === "";
  }

  return { element: h("div", {}, list, spenders), update };
}

/** Return the facts of a run: cost, calls, tokens, times, and the remaining limits. */
function factsOf(header: Header, now: number): Fact[] {
  const gauge = (name: string): Gauge | undefined => header.gauges.find((candidate) => candidate.name === name);
  const tokens = header.input_tokens + header.output_tokens;
  const split = `${plural(header.input_tokens, "token")} in, ${plural(header.output_tokens, "token")} out`;
  const rows: (Fact | false)[] = [
    header.cost !== null && { name: "Cost", value: dollars(header.cost), gauge: gauge("cost") },
    (header.model_calls > 0 || gauge("model calls") !== undefined) && { name: "Model calls", value: count(header.model_calls), gauge: gauge("model calls") },
    header.tool_calls > 0 && { name: "Tool calls", value: count(header.tool_calls) },
    (tokens > 0 || gauge("tokens") !== undefined) && { name: "Tokens", value: count(tokens), gauge: gauge("tokens"), title: split },
    ...times(header, now),
  ];
  const ownFacts = rows.filter((row) => row !== false);
  const otherGauges = header.gauges.filter(({ name }) => !GAUGES_OF_FACTS.includes(name) || (name === "cost" && header.cost === null));
  const gaugeFacts = otherGauges.map((other) => {
    const name = other.name.replace(/^./, (first) => first.toUpperCase());
    return { name, value: amount(other.spent, other.unit), gauge: other };
  });
  return [...ownFacts, ...gaugeFacts];
}

/** Return the working time, the time of waiting for a person, and the time of being paused. The current period is added to its sum. */
function times(header: Header, now: number): Fact[] {
  const since = header.since_us === null ? 0 : Math.max(0, now - header.since_us);
  const timeSpent = (doing: Doing, until: number): number => until + (header.doing === doing ? since : 0);
  const rows: [string, number][] = [
    ["Worked", timeSpent("worked", header.worked_us)],
    ["Waited for you", timeSpent("waited", header.waited_us)],
    ["Paused", timeSpent("paused", header.paused_us)],
  ];
  return rows.filter(([, micros]) => micros > 0).map(([name, micros]) => ({ name, value: duration(micros) }));
}

/** Return a count as text; millions are abbreviated. */
function count(value: number): string {
  return value < 1e6 ? value.toLocaleString("en") : `${(value / 1e6).toFixed(2)} M`;
}

/** Return an amount with its unit. Costs and times have formats of their own. */
function amount(value: number, unit: string): string {
  if (unit === "$") return dollars(value);
  if (unit === "s") return duration(value * 1e6);
  return `${count(Number(value.toFixed(1)))}${unit === "" ? "" : ` ${unit}`}`;
}

function spenderText({ agent, requests, cost }: Spender): string {
  return [`${agent}: ${plural(requests, "model call")}`, price(cost)].filter(Boolean).join(", ");
}

/** Return the element of a fact. The sign and the bar show how close its limit is. */
function factRow({ name, value, gauge, title }: Fact): HTMLElement {
  let share = 0;
  let level: "spent" | "near" | "fine" | null = null;
  if (gauge !== undefined) {
    share = gauge.limit > 0 ? gauge.spent / gauge.limit : 1;
    level = "fine";
    if (share >= 1) level = "spent";
    else if (share >= NEAR_LIMIT) level = "near";
  }
  const sign = { spent: "✕ ", near: "▲ ", fine: "" }[level ?? "fine"];
  const bound = gauge === undefined ? "" : ` of ${amount(gauge.limit, gauge.unit)}`;
  const bar = gauge !== undefined && track(gauge, share, `${gauge.name} ${value}${bound}`);
  const term = h("dt", {}, `${sign}${name}`);
  const details = h("dd", {}, bar, h("strong", {}, value), bound);
  return h("div", { class: "db-fact", "data-level": level, title: title ?? null }, term, details);
}

/** Return a bar that shows the used share of a limit. */
function track(gauge: Gauge, share: number, text: string): HTMLElement {
  const fill = h("span", { class: "db-fill" });
  fill.style.width = `${Math.min(1, share) * 100}%`;
  return h("span", { class: "db-track", role: "meter", "aria-valuenow": gauge.spent, "aria-valuemin": 0, "aria-valuemax": gauge.limit, "aria-label": text }, fill);
}
