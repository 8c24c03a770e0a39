// Recovery options of a failure, each with its reused results, its new calls and its estimated cost.

import type { Ack, FailureView, Way } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { dollars, duration } from "../shared/format";
import type { Host } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { canGo, goTo } from "../shared/celllinks";

/** Makes the ways on; `update` shows those that there are now. */
export function ways(model: Model, host: Host, failureNow: () => FailureView | undefined): { element: HTMLElement; update: () => void } {
  const rows = h("div", { class: "ways" });
  const notice = h("p", { class: "notice", role: "status", hidden: true });
  const told = h("p", { class: "told" });
  const goOn = button("Continue", () => { fold(); send("fix"); }, { class: "primary" });
  const sure = h(
    "div",
    { class: "sure", role: "group", "aria-label": "Continue with this plan?", hidden: true, onkeydown: (event: KeyboardEvent) => { if (event.key === "Escape") fold(); } },
    told, h("div", { class: "choice" }, goOn, button("Not now", fold)),
  );
  const element = h("div", { class: "todo" }, rows, sure, notice);
  let drawn = "";

  function say(text: string): void {
    setText(notice, text);
    notice.hidden = text === "";
  }

  function take(way: Way): void {
    const failure = failureNow();
    if (way.name === "replay") {
      if (failure !== undefined) host.replay?.(failure.sequence);
      return;
    }
    say(`${way.label} …`);
    if (way.name === "again") send("again");
    else void host.control("plan").then((ack) => { if (ack.accepted && ack.text === "") send("fix"); else heard(ack); });
  }

  /** Shows a plan, which a person may agree to, or why there is none. */
  function heard({ accepted, text }: Ack): void {
    say(accepted ? "" : text);
    if (!accepted) return;
    setText(told, text);
    sure.hidden = false;
    goOn.focus();
  }

  function fold(): void {
    if (sure.contains(document.activeElement)) rows.querySelector("button")?.focus();
    sure.hidden = true;
  }

  function send(command: "fix" | "again"): void {
    void host.control(command).then((ack) => { say(ack.accepted ? "" : ack.text); });
  }

  function row(way: Way, isFirst: boolean): HTMLElement {
    const failure = failureNow();
    const edits = way.name === "fix" && !way.ready && failure !== undefined && canGo(failure) ? failure : undefined;
    const pressed = edits === undefined
      ? button(way.label, () => { take(way); }, { class: isFirst ? "primary" : null })
      : button(`Edit ${edits.place.split(",")[0] ?? ""}`, () => { goTo(host.root, edits); }, { class: isFirst ? "primary" : null });
    pressed.disabled = edits === undefined && (!way.ready || model.connected !== "connected");
    return h("div", { class: "row" }, pressed, h("span", { class: "plan" }, ...plan(way)));
  }

  function update(): void {
    const offered = (model.header?.ways ?? []).filter(({ name }) => name !== "replay" || host.replay !== undefined);
    element.hidden = offered.length === 0;
    const key = JSON.stringify([offered, model.connected, failureNow()?.sequence]);
    if (key === drawn) return;
    drawn = key;
    fold(); // it may be another one by now
    const held = rows.contains(document.activeElement) ? [...rows.querySelectorAll("button")].findIndex((one) => one === document.activeElement) : -1;
    rows.replaceChildren(...offered.map((way, place) => row(way, place === 0)));
    rows.querySelectorAll("button")[held]?.focus();
  }

  return { element, update };
}

function plan({ told, reused, live, cost, took_us: took }: Way): (Node | string)[] {
  const price = [cost !== null && cost > 0 ? dollars(cost) : "", took === null ? "" : duration(took)].filter(Boolean).join(" and ");
  const parts: (Node | string)[] = [told];
  if (reused !== "") parts.push(" ", h("strong", {}, "Reused:"), ` ${reused}.`);
  if (live !== "") parts.push(" ", h("strong", {}, "Live:"), ` ${live}${price === "" ? "" : `, about ${price}`}.`);
  return parts;
}
