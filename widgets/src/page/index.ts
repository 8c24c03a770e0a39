// First script of an HTML file with a saved run: it verifies all parts, unpacks the viewer, and starts it.

import { h } from "../shared/dom";
import { unpackText } from "../shared/unpack";
import { partsOf, joinTexts, withTexts } from "./parts";
import type { Show } from "./viewer";

const REQUIRED = ["viewer", "texts", "run"];
const UNPACK_LIMIT = 64_000_000; // bytes

/** Verify the parts, report damaged ones, and show the run if all needed parts are valid. */
async function start(): Promise<void> {
  const main = document.querySelector("main");
  const messages = document.querySelector("#told");
  if (main === null || messages === null) throw new Error("elements of the page are missing");
  const names = (main.dataset["parts"] ?? "").split(" ");
  const { valid: validParts, faults } = partsOf(document, [...new Set([...REQUIRED, ...names])]);
  const notices = [...faults.values()].map((fault) =>
    h("p", { class: "fault", role: "alert" }, `${fault} Get a new copy of the file from its source.`));
  messages.replaceChildren(...notices);
  if (REQUIRED.some((name) => faults.has(name))) {
    messages.append(h("p", {}, "The run cannot be shown without these parts."));
    return;
  }
  const unpackPart = (name: string): Promise<string> => unpackText(validParts.get(name) ?? "", UNPACK_LIMIT);
  const script = document.createElement("script");
  script.textContent = await unpackPart("viewer");
  document.head.append(script);
  const texts = joinTexts(JSON.parse(await unpackPart("texts")) as (string | string[])[]);
  const { show } = window as unknown as { show: Show };
  main.append(show(withTexts(await unpackPart("run"), texts)));
  if (faults.size === 0) messages.append(h("p", {}, `All parts of this file are undamaged: ${names.join(", ")}.`));
}

start().catch((error: unknown) => {
  const reason = error instanceof Error ? error.message : String(error);
  const notice = h("p", { class: "fault", role: "alert" }, `This run cannot be shown: ${reason}`);
  document.querySelector("#told")?.append(notice);
});
