// Details of one span: its facts, the messages of a model call, its events as JSON to read and to copy.

import type { Detail, DetailEvent } from "../protocol";
import type { Connection } from "../shared/connection";
import { copyButton } from "../shared/copy";
import { h, longText, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import type { Model } from "../shared/model";
import { printed } from "../shared/text";
import { exactMoment } from "../shared/times";
import { eventName } from "../shared/words";
import { conversation } from "./messages";

/** Makes the panel; it is there while a span is selected. */
export function detail(model: Model, ask: Connection["detail"], describe: (id: number) => string, close: () => void): View {
  const title = h("strong", { class: "db-name" });
  const facts = h("pre", { class: "db-text db-facts" });
  const written = h("pre", { class: "db-text db-written", dir: "auto", hidden: true });
  const body = h("div", { class: "db-events" });
  const closer = button("Close", close, { class: "db-button", "aria-label": "Close details" });
  const element = h("section", { class: "db-detail", "aria-label": "Details", tabindex: -1, hidden: true }, h("div", { class: "db-top" }, title, closer), facts, written, body);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  });
  let shown: number | null = null;
  let state = "";

  function show(): void {
    const id = model.selected;
    element.hidden = id === null || !model.spans.has(id);
    if (id === null || element.hidden) {
      shown = null;
      return;
    }
    const [first = "", ...rest] = describe(id).split("\n");
    setText(title, first);
    setText(facts, rest.join("\n"));
    stream(id);
    const present = `${model.spans.text(id, "status")} ${model.spans.number(id, "attempts")}`;
    if (id === shown && present === state) return;
    if (id !== shown) body.replaceChildren(h("p", { class: "db-faint" }, "loading …"));
    [shown, state] = [id, present];
    ask(id, (answer) => { if (answer.id === model.selected) fill(answer); });
  }

  function stream(id: number): void {
    const parts = model.streams.get(id);
    const text = parts?.get("text")?.text ?? printed(parts?.get("output")?.text ?? "");
    written.hidden = text === "";
    setText(written, text);
  }

  function fill(answer: Detail): void {
    const said = conversation(answer.events).map(({ by, text }) => h("div", { class: "db-said" }, h("div", { class: "db-by" }, by), longText(text)));
    const error = answer.error && h("p", { class: "db-error" }, answer.error);
    body.replaceChildren(...(error ? [error] : []), ...said, ...answer.events.map((event) => eventView(event, said.length === 0)));
  }

  const undo = model.on((change) => { if (change === "selection" || ((change === "spans" || change === "streams") && shown !== null)) show(); });
  return { element, destroy: undo };
}

function eventView(event: DetailEvent, isOpen: boolean): HTMLElement {
  const json = JSON.stringify(event.data, null, 2);
  const copier = copyButton(() => json, { class: "db-button db-copy", "aria-label": `Copy the JSON of event ${event.sequence}` });
  const summary = h("summary", {}, `${eventName(event.event_type)} `, h("span", { class: "db-faint" }, `#${event.sequence} at ${exactMoment(event.recorded_us)}`));
  return h("details", { open: isOpen, class: "db-event" }, summary, copier, longText(json));
}
