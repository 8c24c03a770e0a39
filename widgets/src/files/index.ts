// Bundle of the files that a run has changed in its workspaces: one line for each, with its difference.

import type { Files, WorkspaceView } from "../protocol";
import { copyButton } from "../shared/copy";
import { Takings, type Taking } from "./taking";
import { h, setText, type View } from "../shared/dom";
import { fileList } from "../shared/filediff";
import { plural } from "../shared/format";
import type { Host, Part } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import style from "./files.css";

const EVERY = 1_000; // milliseconds between two looks
const PATIENCE = 5_000; // after which an answer is taken for lost

/** Shows changed files while it is unfolded, and asks for them only then. */
export function files(model: Model, host: Host): View {
  const summary = h("summary", {}, "Files");
  const body = h("div", { class: "workspaces" });
  const element = h("details", { class: "db-workflow divebook-files", open: true, hidden: true }, summary, body);
  let [version, generation, askedAt]: [number, number, number | null] = [0, model.generation, null];
  let isBehind = true;
  let [at, since] = [0, 0]; // the event whose files are shown, 0 for those of now, and the one that they are compared with
  let timer: ReturnType<typeof setTimeout> | undefined;

  const takings = new Takings(model, host);

  function look(): void {
    isBehind = true;
    const isWaiting = askedAt !== null && Date.now() - askedAt < PATIENCE;
    if (timer !== undefined || isWaiting || !element.open || at > 0) return;
    if (generation !== model.generation) [generation, version] = [model.generation, 0]; // another kernel counts anew
    [isBehind, askedAt] = [false, Date.now()];
    host.files(version, take, 0, since);
  }

  /** Shows the files as they were at an event, beside those of another one. */
  function stand(event: number, before: number): void {
    [at, since, version] = [event, before, 0];
    if (at > 0) host.files(0, take, at, since);
    else {
      clearTimeout(timer);
      [timer, askedAt] = [undefined, null];
      look();
    }
  }

  function take(told: Files): void {
    if (told.at !== at || told.since !== since) return; // another event was chosen meanwhile
    if (at > 0) {
      if (told.workspaces !== null) show(told.workspaces);
      return;
    }
    askedAt = null;
    timer = setTimeout(() => {
      timer = undefined;
      if (isBehind) look();
    }, EVERY);
    version = since > 0 ? 0 : told.version;
    if (told.workspaces !== null) show(told.workspaces);
  }

  function show(workspaces: readonly WorkspaceView[]): void {
    const total = workspaces.reduce((sum, one) => sum + one.total, 0);
    element.hidden = total === 0 && at === 0 && since === 0;
    setText(summary, `Changed files (${total.toLocaleString("en")})`);
    const paths = (which: string): Set<string> => new Set([...body.querySelectorAll(`${which} > summary code`)].map((one) => one.textContent));
    const [known, unfolded] = [paths("details"), paths("details[open]")];
    const before = body.childElementCount > 0;
    const run = model.header?.execution_id ?? "";
    const shown = workspaces.map((one) => {
      const mayTake = since === 0 && one.folder !== "" && one.files.length > 0 && host.takeOver !== undefined;
      const taking = mayTake ? takings.of(one, at) : undefined;
      return h("div", {}, workspace(one, taking), taking?.element, chooser(one, [at, since], run, stand));
    });
    body.replaceChildren(...shown);
    if (!before) return;
    for (const one of body.querySelectorAll("details")) { // whoever has unfolded a file, or folded it, goes on so
      const path = one.querySelector("summary code")?.textContent ?? "";
      if (known.size > 0 && !known.has(path)) one.open = false; // what comes beside others is folded
      else if (known.has(path)) one.open = unfolded.has(path);
      one.dispatchEvent(new Event("toggle"));
    }
  }

  const undo = model.on((change) => {
    if (change === "header" || change === "connection") look();
    if (change === "connection") takings.reach();
  });
  element.addEventListener("toggle", look);
  look();
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
    element.remove();
  };
  return { element, destroy };
}

function workspace({ name, kind, folder, total, added, removed, files: shown, left_out: leftOut }: WorkspaceView, taking?: Taking): HTMLElement {
  const of = folder === "" ? "" : `, a copy of ${folder}`;
  const lines = h("span", { class: "lines" }, h("b", {}, `+${added.toLocaleString("en")}`), " ", h("i", {}, `−${removed.toLocaleString("en")}`));
  const head = h("p", { class: "head" }, h("strong", {}, name), h("span", { class: "soft" }, `${kind}${of}`), lines);
  const more = total > shown.length && h("p", { class: "soft" }, `and ${plural(total - shown.length, "file")} more: %dive files lists all`);
  const missing = leftOut.length > 0 && h("p", { class: "soft" }, "Not kept: ", ...leftOut.flatMap(({ path, reason }, place) => [place > 0 ? ", " : "", h("code", {}, path), ` (${reason})`]));
  return h("section", { class: "db-files" }, head, fileList(shown, taking && ((file) => taking.tick(file))), more, missing);
}

/** Chooses the event whose files are shown, and the one that they are compared with; has what puts these files into a folder, or goes on from there. */
function chooser({ name, points }: WorkspaceView, [at, since]: [number, number], run: string, stand: (at: number, since: number) => void): HTMLElement | false {
  if (points.length < 2) return false;
  const choice = (standard: string, some: WorkspaceView["points"], chosen: number): HTMLSelectElement => {
    const options = some.map(({ sequence, told }) => h("option", { value: String(sequence) }, `event ${sequence.toLocaleString("en")}${told === "" ? "" : `: ${oneLine(told, 60)}`}`));
    const select = h("select", { onchange: () => { stand(Number(then.value), Number(before.value)); } }, h("option", { value: "0" }, standard), ...options);
    select.value = String(chosen);
    return select;
  };
  const [then, before] = [choice("now", points, at), choice("the beginning", points.slice(0, -1), since)];
  const labels = [h("label", { class: "soft" }, "Files as they were at ", then), h("label", { class: "soft" }, "compared with ", before)];
  if (at === 0) return h("p", { class: "at" }, ...labels);
  const restore = copyButton(() => `%dive restore ${run} --to FOLDER --at ${at} --workspace ${name}`, { class: "db-button", title: "Puts them into a folder: copies the line to run" }, "Copy %dive restore");
  const fork = copyButton(() => `%dive fork ${run} --at ${at}`, { class: "db-button", title: "Another run from there: copies the line to run" }, "Copy %dive fork");
  return h("p", { class: "at" }, ...labels, restore, fork);
}

const part: Part = { style, make: files };

export default part;
