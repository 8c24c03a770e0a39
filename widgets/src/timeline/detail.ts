// Details of one span: its facts, the messages of a model call, and its events as JSON.

import type { Detail, DetailEvent } from "../protocol";
import type { Connection } from "../shared/connection";
import { copyButton } from "../shared/copy";
import { h, longText, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import type { Model } from "../shared/model";
import { terminalText } from "../shared/text";
import { exactMoment } from "../shared/times";
import { eventName } from "../shared/words";
import { messagesOf } from "./messages";

/** Create the panel, which is visible while a span is selected. */
export function detail(model: Model, requestDetail: Connection["detail"], describe: (id: number) => string, close: () => void): View {
  const title = h("strong", { class: "db-name" });
  const facts = h("pre", { class: "db-text db-facts" });
  const output = h("pre", { class: "db-text db-written", dir: "auto", hidden: true });
  const body = h("div", { class: "db-events" });
  const closeButton = button("Close", close, { class: "db-button", "aria-label": "Close details" });
  const top = h("div", { class: "db-top" }, title, closeButton);
  const attributes = { class: "db-detail", "aria-label": "Details", tabindex: -1, hidden: true };
  const element = h("section", attributes, top, facts, output, body);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  });
  let shownId: number | null = null;
  let shownState = "";

  /** Show the selected span. Its events are requested again if its status or its attempts have changed. */
  function show(): void {
    const id = model.selected;
    element.hidden = id === null || !model.spans.has(id);
    if (id === null || element.hidden) {
      shownId = null;
      return;
    }
    const [first = "", ...rest] = describe(id).split("\n");
    setText(title, first);
    setText(facts, rest.join("\n"));
    showOutput(id);
    const currentState = `${model.spans.text(id, "status")} ${model.spans.number(id, "attempts")}`;
    if (id === shownId && currentState === shownState) return; // its events have not changed
    if (id !== shownId) body.replaceChildren(h("p", { class: "db-faint" }, "loading …"));
    shownId = id;
    shownState = currentState;
    requestDetail(id, (answer) => {
      if (answer.id === model.selected) fill(answer);
    });
  }

  function showOutput(id: number): void {
    const parts = model.streams.get(id);
    const text = parts?.get("text")?.text ?? terminalText(parts?.get("output")?.text ?? "");
    output.hidden = text === "";
    setText(output, text);
  }

  function fill(answer: Detail): void {
    const messages = messagesOf(answer.events).map(({ by, text }) =>
      h("div", { class: "db-said" }, h("div", { class: "db-by" }, by), longText(text)));
    const errors = answer.error === "" ? [] : [h("p", { class: "db-error" }, answer.error)];
    body.replaceChildren(...errors, ...messages, ...answer.events.map((event) => eventView(event, messages.length === 0)));
  }

  const undo = model.on((change) => {
    const isAboutShown = shownId !== null && (change === "spans" || change === "streams");
    if (change === "selection" || isAboutShown) show();
  });
  return { element, destroy: undo };
}

function eventView(event: DetailEvent, isOpen: boolean): HTMLElement {
  const json = JSON.stringify(event.data, null, 2);
  const jsonCopyButton = copyButton(() => json, { class: "db-button db-copy", "aria-label": `Copy the JSON of event ${event.sequence}` });
  const time = h("span", { class: "db-faint" }, `#${event.sequence} at ${exactMoment(event.recorded_us)}`);
  const summary = h("summary", {}, `${eventName(event.event_type)} `, time);
  return h("details", { open: isOpen, class: "db-event" }, summary, jsonCopyButton, longText(json));
}
