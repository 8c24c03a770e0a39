// The same spans as rows of text: for reading, for screen readers, and for what is too small to hit.

import { h, setText, type View } from "../shared/dom";
import { duration } from "../shared/format";
import type { Model } from "../shared/model";
import { VirtualList } from "../shared/virtual";
import { SIGNS, typeOf } from "./kinds";
import type { Matches } from "./query";

const COLUMNS = ["status", "name", "what", "path", "from", "took", "tokens", "note"] as const;
const LOOK_EVERY = 250; // milliseconds

/** Makes the list of what is meant. */
export function list(model: Model, matches: Matches, reveal: (id: number) => void): View & { update: () => void } {
  const cell = (role: string, text = ""): HTMLElement => h("span", { role, class: "db-cell" }, text);
  const head = h("div", { class: "db-row db-head", role: "row", "aria-rowindex": 1 }, ...COLUMNS.map((name) => cell("columnheader", name)));
  let timer: ReturnType<typeof setTimeout> | undefined;
  let active = -1;

  function texts(id: number): string[] {
    const { spans } = model;
    const status = spans.text(id, "status");
    const tokens = spans.number(id, "tokens");
    return [
      `${SIGNS[status] ?? ""} ${status}`,
      spans.nameOf(id),
      [typeOf(spans, id).name.replace(/s$/, ""), spans.text(id, "label")].filter(Boolean).join(" "),
      spans.text(id, "path"),
      duration(spans.startOf(id)),
      duration(spans.endOf(id, model.now()) - spans.startOf(id)),
      tokens > 0 ? tokens.toLocaleString("en") : "",
      spans.text(id, "note"),
    ];
  }

  const rows = new VirtualList(
    {
      count: () => matches.ids.length,
      make: () => h("div", { class: "db-row", role: "row" }, ...COLUMNS.map(() => cell("cell"))),
      fill: (row, index) => {
        const id = matches.ids[index] ?? 0;
        texts(id).forEach((text, column) => {
          const place = row.children[column];
          if (place === undefined) return;
          setText(place, text);
          place.setAttribute("title", text);
        });
        row.dataset["id"] = String(id);
        row.dataset["status"] = model.spans.text(id, "status");
        row.classList.toggle("db-chosen", id === model.selected);
        row.classList.toggle("db-active", index === active);
      },
    },
    "Spans",
    head,
  );

  function later(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      update();
    }, LOOK_EVERY);
  }

  function update(): void {
    matches.update(model.spans);
    rows.update();
  }

  function choose(id: number): void {
    model.select(id);
    reveal(id);
  }

  rows.element.addEventListener("click", (event) => {
    const row = (event.target as Element).closest<HTMLElement>(".db-row[data-id]");
    if (row !== null) choose(Number(row.dataset["id"]));
  });
  rows.element.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (step !== undefined) {
      active = Math.max(0, Math.min(matches.ids.length - 1, active + step));
      rows.reveal(active);
    } else if (event.key === "Enter" && matches.ids[active] !== undefined) choose(matches.ids[active] ?? 0);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const undo = model.on((change) => { if (change === "selection") update(); else later(); });
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
  };
  return { element: rows.element, destroy, update };
}
