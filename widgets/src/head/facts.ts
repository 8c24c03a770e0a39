// Consumption of a run, always in the same order, each value with its bound if there is one.

import type { Doing, Gauge, Header, Spender } from "../protocol";
import { h } from "../shared/dom";
import { dollars, duration, plural, price } from "../shared/format";
import type { Model } from "../shared/model";

const NEAR_LIMIT = 0.8;
const GAUGES_OF_FACTS = ["cost", "model calls", "tokens"]; // gauges that stand with their fact

interface Fact {
  name: string;
  value: string;
  gauge?: Gauge | undefined;
  title?: string;
}

/** Makes the facts; `update` shows them as they are now. */
export function facts(model: Model): { element: HTMLElement; update: () => void } {
  const list = h("dl", { class: "db-facts" });
  const spenders = h("div", { class: "db-faint db-spenders", hidden: true });
  let shown = "";

  function update(): void {
    if (model.header === null) return;
    const rows = factsOf(model.header, model.originUs + model.clockNow());
    const spenderList = model.header.spenders.length < 2 ? "" : model.header.spenders.map(spenderText).join(" · ");
    if (JSON.stringify([rows, spenderList]) === shown) return;
    shown = JSON.stringify([rows, spenderList]);
    list.replaceChildren(...rows.map(factRow));
    spenders.textContent = spenderList;
    spenders.hidden = spenderList === "";
  }

  return { element: h("div", {}, list, spenders), update };
}

function factsOf(header: Header, now: number): Fact[] {
  const gauge = (name: string): Gauge | undefined => header.gauges.find((each) => each.name === name);
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
  const otherGauges = header.gauges.filter((each) => !GAUGES_OF_FACTS.includes(each.name) || (each.name === "cost" && header.cost === null));
  return [...ownFacts, ...otherGauges.map((each) => ({ name: each.name.replace(/^./, (first) => first.toUpperCase()), value: amount(each.spent, each.unit), gauge: each }))];
}

/** How long it worked, and apart from that how long a person let it wait or had it paused. */
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

function count(value: number): string {
  return value < 1e6 ? value.toLocaleString("en") : `${(value / 1e6).toFixed(2)} M`;
}

function amount(value: number, unit: string): string {
  if (unit === "$") return dollars(value);
  if (unit === "s") return duration(value * 1e6);
  return `${count(Number(value.toFixed(1)))}${unit === "" ? "" : ` ${unit}`}`;
}

function spenderText({ agent, requests, cost }: Spender): string {
  return [`${agent}: ${plural(requests, "model call")}`, price(cost)].filter(Boolean).join(", ");
}

function factRow({ name, value, gauge, title }: Fact): HTMLElement {
  const share = gauge === undefined ? 0 : gauge.limit > 0 ? gauge.spent / gauge.limit : 1;
  const level = gauge === undefined ? null : share >= 1 ? "spent" : share >= NEAR_LIMIT ? "near" : "fine";
  const sign = { spent: "✕ ", near: "▲ ", fine: "" }[level ?? "fine"];
  const bound = gauge === undefined ? "" : ` of ${amount(gauge.limit, gauge.unit)}`;
  const bar = gauge !== undefined && track(gauge, share, `${gauge.name} ${value}${bound}`);
  return h("div", { class: "db-fact", "data-level": level, title: title ?? null }, h("dt", {}, `${sign}${name}`), h("dd", {}, bar, h("strong", {}, value), bound));
}

function track(gauge: Gauge, share: number, text: string): HTMLElement {
  const fill = h("span", { class: "db-fill" });
  fill.style.width = `${Math.min(1, share) * 100}%`;
  return h("span", { class: "db-track", role: "meter", "aria-valuenow": gauge.spent, "aria-valuemin": 0, "aria-valuemax": gauge.limit, "aria-label": text }, fill);
}
