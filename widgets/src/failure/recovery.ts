// Recovery options of a failure, each with its reused results, its new calls and its estimated cost.

import type { Ack, FailureView, Way } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { dollars, duration } from "../shared/format";
import type { Host } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { canGo, goTo } from "../shared/celllinks";

/** Make the list of options; `update` shows the current ones. */
export function recoveryOptions(model: Model, host: Host, failureNow: () => FailureView | undefined): { element: HTMLElement; update: () => void } {
  const rows = h("div", { class: "ways" });
  const notice = h("p", { class: "notice", role: "status", hidden: true });
  const planText = h("p", { class: "told" });
  const confirm = (): void => {
    fold();
    send("fix");
  };
  const confirmButton = button("Continue", confirm, { class: "primary" });
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Escape") fold();
  };
  const confirmation = h(
    "div",
    { class: "sure", role: "group", "aria-label": "Continue with this plan?", hidden: true, onkeydown: onKey },
    planText, h("div", { class: "choice" }, confirmButton, button("Not now", fold)),
  );
  const element = h("div", { class: "todo" }, rows, confirmation, notice);
  let drawnKey = "";

  function showNotice(text: string): void {
    setText(notice, text);
    notice.hidden = text === "";
  }

  /** Run an option. A fix is planned first; a plan without a text needs no confirmation. */
  function choose(way: Way): void {
    const failure = failureNow();
    if (way.name === "replay") {
      if (failure !== undefined) host.replay?.(failure.sequence);
      return;
    }
    showNotice(`${way.label} …`);
    if (way.name === "again") {
      send("again");
      return;
    }
    void host.control("plan").then((ack) => {
      if (ack.accepted && ack.text === "") send("fix");
      else onPlan(ack);
    });
  }

  /** Show a plan for confirmation, or the reason why there is none. */
  function onPlan({ accepted, text }: Ack): void {
    showNotice(accepted ? "" : text);
    if (!accepted) return;
    setText(planText, text);
    confirmation.hidden = false;
    confirmButton.focus();
  }

  /** Hide the confirmation, and move the focus back to the options. */
  function fold(): void {
    if (confirmation.contains(document.activeElement)) rows.querySelector("button")?.focus();
    confirmation.hidden = true;
  }

  function send(command: "fix" | "again"): void {
    void host.control(command).then((ack) => { showNotice(ack.accepted ? "" : ack.text); });
  }

  /** Return an option with its button. A fix that needs an edit first leads to the line to edit. */
  function row(way: Way, isFirst: boolean): HTMLElement {
    const failure = failureNow();
    const needsEdit = way.name === "fix" && !way.ready && failure !== undefined && canGo(failure);
    const editableFailure = needsEdit ? failure : undefined;
    const buttonClass = { class: isFirst ? "primary" : null };
    const optionButton = editableFailure === undefined
      ? button(way.label, () => { choose(way); }, buttonClass)
      : button(`Edit ${editableFailure.place.split(",")[0] ?? ""}`, () => { goTo(host.root, editableFailure); }, buttonClass);
    optionButton.disabled = editableFailure === undefined && (!way.ready || model.connected !== "connected");
    return h("div", { class: "row" }, optionButton, h("span", { class: "plan" }, ...planParts(way)));
  }

  function update(): void {
    const options = (model.header?.ways ?? []).filter(({ name }) => name !== "replay" || host.replay !== undefined);
    element.hidden = options.length === 0;
    const key = JSON.stringify([options, model.connected, failureNow()?.sequence]);
    if (key === drawnKey) return;
    drawnKey = key;
    fold(); // the plan may be out of date
    const focusedIndex = [...rows.querySelectorAll("button")].findIndex((element) => element === document.activeElement);
    rows.replaceChildren(...options.map((way, place) => row(way, place === 0)));
    rows.querySelectorAll("button")[focusedIndex]?.focus();
  }

  return { element, update };
}

/** Return the description of an option with its reused results, its new calls and their cost. */
function planParts({ told: description, reused, live, cost, took_us: runTime }: Way): (Node | string)[] {
  const costText = cost !== null && cost > 0 ? dollars(cost) : "";
  const timeText = runTime === null ? "" : duration(runTime);
  const price = [costText, timeText].filter(Boolean).join(" and ");
  const parts: (Node | string)[] = [description];
  if (reused !== "") parts.push(" ", h("strong", {}, "Reused:"), ` ${reused}.`);
  if (live !== "") parts.push(" ", h("strong", {}, "New calls:"), ` ${live}${price === "" ? "" : `, about ${price}`}.`);
  return parts;
}
