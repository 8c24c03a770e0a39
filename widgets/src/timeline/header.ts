// The head of the live view: status, numbers, bounds, durability, and the three things a person can ask for.

import type { Command, Gauge, Spender } from "../protocol";
import type { Connection } from "../shared/connection";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import { dollars, duration, plural, price } from "../shared/format";
import type { Model } from "../shared/model";
import { SIGNS } from "./kinds";

const COMMANDS: readonly [Command, string][] = [
  ["pause", "Pause"],
  ["resume", "Resume"],
  ["cancel", "Cancel"],
];
const DURABILITY = {
  durable: ["durable", "Every event is safe on disk, even if the power fails."],
  relaxed: ["relaxed", "Events survive a crash of this process; a power failure may take the latest."],
  memory: ["memory only", "Events are kept in memory and end with this process."],
} as const;

/** Makes the head. */
export function header(model: Model, connection: Pick<Connection, "control">): View {
  const name = h("strong", { class: "db-name" });
  const status = h("span", { class: "db-status" });
  const elapsed = h("span", { class: "db-fact" });
  const facts = h("span", { class: "db-fact" });
  const spenders = h("div", { class: "db-fact", hidden: true });
  const durability = h("span", { class: "db-badge" });
  const gauges = h("div", { class: "db-gauges" });
  const notice = h("div", { class: "db-notice", role: "status", hidden: true });
  const waits = h("div", { class: "db-notice db-waits", hidden: true });
  const error = h("div", { class: "db-error", role: "alert", hidden: true });
  const buttons = new Map(COMMANDS.map(([command, label]) => [command, button(label, () => { ask(command); }, { class: "db-button" })]));

  let wasAway = false;

  function ask(command: Command): void {
    const pressed = buttons.get(command);
    pressed?.setAttribute("aria-busy", "true");
    void connection.control(command).then((ack) => {
      pressed?.removeAttribute("aria-busy");
      say(ack.accepted ? "" : ack.text);
    });
  }

  function say(text: string): void {
    setText(notice, text);
    notice.hidden = text === "";
  }

  function tick(): void {
    const shown = model.header;
    if (shown === null || shown.started_us === null) return;
    const end = shown.ended_us ?? model.originUs + model.now();
    setText(elapsed, duration(Math.max(0, end - shown.started_us)));
  }

  function show(): void {
    const shown = model.header;
    if (shown === null) return;
    setText(name, shown.workflow);
    name.title = shown.execution_id;
    setText(status, `${SIGNS[shown.status] ?? ""} ${shown.status}`);
    status.dataset["status"] = shown.status;
    const tokens = shown.input_tokens + shown.output_tokens;
    const tools = shown.tool_calls > 0 && plural(shown.tool_calls, "tool call");
    const cost = shown.cost !== null && dollars(shown.cost);
    const told = [plural(shown.model_calls, "model call"), tools, plural(tokens, "token"), cost];
    setText(facts, told.filter((part) => part !== false).join(" · "));
    facts.title = `${plural(shown.input_tokens, "token")} in, ${plural(shown.output_tokens, "token")} out`;
    setText(spenders, shown.spenders.length < 2 ? "" : shown.spenders.map(spender).join(" · "));
    spenders.hidden = spenders.textContent === "";
    const [word, meaning] = DURABILITY[shown.durability];
    setText(durability, word);
    durability.title = meaning;
    durability.dataset["durability"] = shown.durability;
    gauges.replaceChildren(...shown.gauges.map(gauge));
    setText(waits, shown.waits);
    waits.hidden = shown.waits === "";
    setText(error, shown.error);
    error.hidden = shown.error === "";
    for (const [command, element] of buttons) element.hidden = !shown.commands.includes(command);
    connected();
    tick();
  }

  function connected(): void {
    for (const element of buttons.values()) element.disabled = model.connected !== "connected";
    const away = { connecting: "connecting to the kernel …", connected: "", detached: detached(model) }[model.connected];
    if (away || wasAway) say(away);
    wasAway = away !== "";
  }

  const timer = setInterval(tick, 200);
  const undo = model.on((change) => {
    if (change === "header" || change === "connection") show();
    if (change === "connection") connected();
  });
  connected();
  const line = h("div", { class: "db-line" }, name, status, elapsed, facts, durability);
  const actions = h("div", { class: "db-actions", role: "group", "aria-label": "Execution" }, ...buttons.values());
  const element = h("div", { class: "db-header" }, h("div", { class: "db-top" }, line, actions), spenders, gauges, error, notice, waits);
  const destroy = (): void => {
    clearInterval(timer);
    undo();
  };
  return { element, destroy };
}

function detached(model: Model): string {
  const id = model.header?.execution_id;
  return `detached: its kernel is gone; to go on, run the cell again${id ? `, or %dive resume ${id}` : ""}`;
}

function spender({ agent, requests, cost }: Spender): string {
  return [`${agent}: ${plural(requests, "model call")}`, price(cost)].filter(Boolean).join(", ");
}

function amount(value: number, unit: string): string {
  if (unit === "$") return dollars(value);
  return `${value.toLocaleString("en", { maximumFractionDigits: 1 })}${unit === "" ? "" : ` ${unit}`}`;
}

function gauge(bound: Gauge): HTMLElement {
  const share = bound.limit > 0 ? Math.min(1, bound.spent / bound.limit) : 1;
  const number = (value: number): string => amount(value, bound.unit);
  const text = `${bound.name} ${number(bound.spent)} of ${number(bound.limit)}`;
  const fill = h("span", { class: "db-fill" });
  fill.style.width = `${share * 100}%`;
  const meter = { role: "meter", "aria-valuenow": bound.spent, "aria-valuemin": 0, "aria-valuemax": bound.limit, "aria-label": text };
  const level = share >= 1 ? "spent" : share >= 0.8 ? "near" : "fine";
  return h("div", { class: "db-gauge", "data-level": level }, h("span", { class: "db-track", ...meter }, fill), level === "fine" ? text : `${text} ${level === "spent" ? "✕" : "!"}`);
}
