// Bundle of the failures of a run: one card, with navigation between failures.

import type { FailureView } from "../protocol";
import { h, setText, type View } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import type { Host, Part } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { plural } from "../shared/format";
import { textOf } from "../shared/celllinks";
import { card, headline } from "./card";
import style from "./failure.css";
import { ways } from "./ways";

/** Shows the failures of a run, one at a time. */
function failures(model: Model, host: Host): View {
  const title = h("span", { class: "err" });
  const same = h("span", { class: "soft" });
  const place = h("span", { class: "place", role: "status" });
  const step = (sign: string, label: string, key: string, by: number): HTMLButtonElement => button(sign, () => { go(at + by); }, { "aria-label": label, title: label, "aria-keyshortcuts": key });
  const [before, after] = [step("‹", "Failure before", "P", -1), step("›", "Next failure", "N", 1)];
  const seg = h("span", { class: "seg", role: "group", "aria-label": "Failures" }, before, place, after);
  const body = h("div", { class: "body" });
  const on = ways(model, host, () => shown[at]);
  const summary = h("summary", { class: "head" }, title, same);
  const whole = h("details", {}, summary, body, on.element);
  const element = h("section", { class: "divebook-failure", "aria-label": "What failed" }, whole, seg);
  const spoken = h("div", { class: "db-hidden", role: "alert" });
  element.append(spoken);
  let shown: readonly FailureView[] = [];
  let at = 0;
  let drawn = "";
  let wasFailed: boolean | null = null;

  function go(wanted: number): void {
    at = (wanted + shown.length) % shown.length;
    whole.open = true;
    const id = shown[at]?.id ?? -1;
    show();
    if (id >= 0) model.select(id);
  }

  function show(): void {
    const { total, kept } = model.failures;
    shown = model.failures.shown;
    const failure = shown[at] ?? shown[0];
    element.hidden = failure === undefined;
    if (failure === undefined) return;
    fold();
    const key = JSON.stringify([failure, kept, textOf(host.root, failure.cell)]);
    if (key !== drawn) {
      body.replaceChildren(...card(failure, kept, model, host.root));
      setText(spoken, headline(failure));
    }
    drawn = key;
    tell(failure, total);
  }

  function tell(failure: FailureView, total: number): void {
    setText(title, `✕ ${headline(failure)}`);
    setText(same, failure.same > 1 ? `the same error ${failure.same.toLocaleString("en")} times` : "");
    seg.hidden = total < 2;
    for (const each of [before, after]) setAttribute(each, "disabled", shown.length < 2);
    const missing = total > shown.length ? `, ${plural(shown.length, "error")} shown` : "";
    setText(place, `${(at + 1).toLocaleString("en")} of ${total.toLocaleString("en")}${missing}`);
    on.update();
  }

  /** What the run went on from stands folded; what ended it does not. */
  function fold(): void {
    const isFailed = model.header?.status === "failed";
    if (isFailed !== wasFailed) whole.open = isFailed;
    wasFailed = isFailed;
  }

  function follow(): void {
    const found = shown.findIndex(({ id }) => id === model.selected);
    if (found < 0 || found === at) return;
    at = found;
    show();
  }

  const undo = model.on((change) => {
    if (change === "failures" || change === "header" || change === "connection") show();
    if (change === "selection") follow();
  });
  element.addEventListener("pointerenter", show); // a person may have edited the cell meanwhile
  show();
  return { element, destroy: undo };
}

const part: Part = { style, make: failures };

export default part;
