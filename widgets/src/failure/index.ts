// Bundle of the failures of a run: a card for one failure, and navigation between failures.

import type { FailureView } from "../protocol";
import { h, setText, type View } from "../shared/dom";
import { button, setAttribute } from "../shared/element";
import type { Host, Part } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { textOf } from "../shared/celllinks";
import { card, headline } from "./card";
import style from "./failure.css";
import { recoveryOptions } from "./recovery";

/** View of a run's failures, one at a time. */
function failureView(model: Model, host: Host): View {
  const title = h("span", { class: "err" });
  const same = h("span", { class: "soft" });
  const place = h("span", { class: "place", role: "status" });
  const step = (sign: string, label: string, key: string, by: number): HTMLButtonElement => {
    const attributes = { "aria-label": label, title: label, "aria-keyshortcuts": key };
    return button(sign, () => { go(position + by); }, attributes);
  };
  const previousButton = step("‹", "Previous failure", "P", -1);
  const nextButton = step("›", "Next failure", "N", 1);
  const navigation = h("span", { class: "seg", role: "group", "aria-label": "Failures" }, previousButton, place, nextButton);
  const body = h("div", { class: "body" });
  const recovery = recoveryOptions(model, host, () => failures[position]);
  const summary = h("summary", { class: "head" }, title, same);
  const details = h("details", {}, summary, body, recovery.element);
  const element = h("section", { class: "divebook-failure", "aria-label": "Failure" }, details, navigation);
  const liveRegion = h("div", { class: "db-hidden", role: "alert" });
  element.append(liveRegion);
  let failures: readonly FailureView[] = [];
  let position = 0;
  let drawnKey = "";
  let wasFailed: boolean | null = null;

  /** Go to a failure, around the ends, and select it in the other views. */
  function go(index: number): void {
    position = (index + failures.length) % failures.length;
    details.open = true;
    const id = failures[position]?.id ?? -1;
    show();
    if (id >= 0) model.select(id);
  }

  /** Show the current failure. The card is replaced only if it has changed. */
  function show(): void {
    const { total, kept } = model.failures;
    failures = model.failures.shown;
    const failure = failures[position] ?? failures[0];
    element.hidden = failure === undefined;
    if (failure === undefined) return;
    updateFold();
    const key = JSON.stringify([failure, kept, textOf(host.root, failure.cell)]);
    if (key !== drawnKey) {
      body.replaceChildren(...card(failure, kept, model, host.root));
      setText(liveRegion, headline(failure));
    }
    drawnKey = key;
    showTexts(failure, total);
  }

  function showTexts(failure: FailureView, total: number): void {
    setText(title, `✕ ${headline(failure)}`);
    setText(same, failure.same > 1 ? `${failure.same.toLocaleString("en")} failures with the same error` : "");
    navigation.hidden = total < 2;
    for (const stepButton of [previousButton, nextButton]) setAttribute(stepButton, "disabled", failures.length < 2);
    const missing = total > failures.length ? `, ${failures.length.toLocaleString("en")} shown` : "";
    setText(place, `${(position + 1).toLocaleString("en")} of ${total.toLocaleString("en")}${missing}`);
    recovery.update();
  }

  /** Unfold the card of a failure that ended the run; fold it if the run continued. Only a change of the status has this effect. */
  function updateFold(): void {
    const isFailed = model.header?.status === "failed";
    if (isFailed !== wasFailed) details.open = isFailed;
    wasFailed = isFailed;
  }

  /** Go to the failure that is selected in another view. */
  function followSelection(): void {
    const index = failures.findIndex(({ id }) => id === model.selected);
    if (index < 0 || index === position) return;
    position = index;
    show();
  }

  const undo = model.on((change) => {
    if (change === "failures" || change === "header" || change === "connection") show();
    if (change === "selection") followSelection();
  });
  element.addEventListener("pointerenter", show); // a person may have edited the cell meanwhile
  show();
  return { element, destroy: undo };
}

const part: Part = { style, make: failureView };

export default part;
