// First script of a file that contains a run: checks all parts, unpacks the viewer, and lets it show the run.

import { h } from "../shared/dom";
import { unpacked } from "../shared/unpack";
import { partsOf, wholeTexts, withTexts } from "./parts";
import type { Show } from "./viewer";

const NEEDED = ["viewer", "texts", "run"];
const MOST_UNPACKED = 64_000_000;

async function begin(): Promise<void> {
  const place = document.querySelector("main");
  const told = document.querySelector("#told");
  if (place === null || told === null) throw new Error("the page has lost its places");
  const names = (place.dataset["parts"] ?? "").split(" ");
  const { sound, faults } = partsOf(document, [...new Set([...NEEDED, ...names])]);
  told.replaceChildren(...[...faults.values()].map((fault) => h("p", { class: "fault", role: "alert" }, `${fault} Get the file again from where it came from.`)));
  if (NEEDED.some((name) => faults.has(name))) {
    told.append(h("p", {}, "So the run cannot be shown."));
    return;
  }
  const part = (name: string): Promise<string> => unpacked(sound.get(name) ?? "", MOST_UNPACKED);
  const script = document.createElement("script");
  script.textContent = await part("viewer");
  document.head.append(script);
  const texts = wholeTexts(JSON.parse(await part("texts")) as (string | string[])[]);
  const { show } = window as unknown as { show: Show };
  place.append(show(withTexts(await part("run"), texts)));
  if (faults.size === 0) told.append(h("p", {}, `All parts of this file are as they were written: ${names.join(", ")}.`));
}

begin().catch((error: unknown) => {
  document.querySelector("#told")?.append(h("p", { class: "fault", role: "alert" }, `This run cannot be shown: ${error instanceof Error ? error.message : String(error)}`));
});
