// Bundle of the files that a run has changed in its workspaces: one line for each, with its difference.

import type { Files, WorkspaceView } from "../protocol";
import { copyButton } from "../shared/copy";
import { FileSelections, type FileSelection } from "./selection";
import { h, setText, type View } from "../shared/dom";
import { fileList } from "../shared/filediff";
import { plural } from "../shared/format";
import type { Host, Part } from "../shared/later";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import style from "./files.css";

const POLL_INTERVAL = 1_000; // milliseconds between two looks
const ANSWER_TIMEOUT = 5_000; // after which an answer is taken for lost

/** Shows changed files while it is unfolded, and asks for them only then. */
export function files(model: Model, host: Host): View {
  const summary = h("summary", {}, "Files");
  const body = h("div", { class: "workspaces" });
  const element = h("details", { class: "db-workflow divebook-files", open: true, hidden: true }, summary, body);
  let [version, generation, askedAt]: [number, number, number | null] = [0, model.generation, null];
  let isBehind = true;
  let [at, since] = [0, 0]; // the event whose files are shown, 0 for those of now, and the one that they are compared with
  let timer: ReturnType<typeof setTimeout> | undefined;

  const selections = new FileSelections(model, host);

  function poll(): void {
    isBehind = true;
    const isWaiting = askedAt !== null && Date.now() - askedAt < ANSWER_TIMEOUT;
    if (timer !== undefined || isWaiting || !element.open || at > 0) return;
    if (generation !== model.generation) [generation, version] = [model.generation, 0]; // another kernel counts anew
    [isBehind, askedAt] = [false, Date.now()];
    host.files(version, onFiles, 0, since);
  }

  /** Shows the files as they were at an event, beside those of another one. */
  function chooseEvents(event: number, before: number): void {
    [at, since, version] = [event, before, 0];
    if (at > 0) host.files(0, onFiles, at, since);
    else {
      clearTimeout(timer);
      [timer, askedAt] = [undefined, null];
      poll();
    }
  }

  function onFiles(answer: Files): void {
    if (answer.at !== at || answer.since !== since) return; // another event was chosen meanwhile
    if (at > 0) {
      if (answer.workspaces !== null) show(answer.workspaces);
      return;
    }
    askedAt = null;
    timer = setTimeout(() => {
      timer = undefined;
      if (isBehind) poll();
    }, POLL_INTERVAL);
    version = since > 0 ? 0 : answer.version;
    if (answer.workspaces !== null) show(answer.workspaces);
  }

  function show(workspaces: readonly WorkspaceView[]): void {
    const total = workspaces.reduce((sum, one) => sum + one.total, 0);
    element.hidden = total === 0 && at === 0 && since === 0;
    setText(summary, `Changed files (${total.toLocaleString("en")})`);
    const paths = (selector: string): Set<string> => new Set([...body.querySelectorAll(`${selector} > summary code`)].map((one) => one.textContent));
    const [previousPaths, openPaths] = [paths("details"), paths("details[open]")];
    const hadContent = body.childElementCount > 0;
    const run = model.header?.execution_id ?? "";
    const sections = workspaces.map((one) => {
      const isSelectable = since === 0 && one.folder !== "" && one.files.length > 0 && host.takeOver !== undefined;
      const selection = isSelectable ? selections.of(one, at) : undefined;
      return h("div", {}, workspace(one, selection), selection?.element, chooser(one, [at, since], run, chooseEvents));
    });
    body.replaceChildren(...sections);
    if (!hadContent) return;
    for (const one of body.querySelectorAll("details")) { // whoever has unfolded a file, or folded it, goes on so
      const path = one.querySelector("summary code")?.textContent ?? "";
      if (previousPaths.size > 0 && !previousPaths.has(path)) one.open = false; // what comes beside others is folded
      else if (previousPaths.has(path)) one.open = openPaths.has(path);
      one.dispatchEvent(new Event("toggle"));
    }
  }

  const undo = model.on((change) => {
    if (change === "header" || change === "connection") poll();
    if (change === "connection") selections.refresh();
  });
  element.addEventListener("toggle", poll);
  poll();
  const destroy = (): void => {
    clearTimeout(timer);
    undo();
    element.remove();
  };
  return { element, destroy };
}

function workspace({ name, kind, folder, total, added, removed, files: files, left_out: leftOut }: WorkspaceView, selection?: FileSelection): HTMLElement {
  const of = folder === "" ? "" : `, a copy of ${folder}`;
  const lines = h("span", { class: "lines" }, h("b", {}, `+${added.toLocaleString("en")}`), " ", h("i", {}, `−${removed.toLocaleString("en")}`));
  const head = h("p", { class: "head" }, h("strong", {}, name), h("span", { class: "soft" }, `${kind}${of}`), lines);
  const more = total > files.length && h("p", { class: "soft" }, `and ${plural(total - files.length, "file")} more: %dive files lists all`);
  const missing = leftOut.length > 0 && h("p", { class: "soft" }, "Not kept: ", ...leftOut.flatMap(({ path, reason }, place) => [place > 0 ? ", " : "", h("code", {}, path), ` (${reason})`]));
  return h("section", { class: "db-files" }, head, fileList(files, selection && ((file) => selection.checkbox(file))), more, missing);
}

/** Chooses the event whose files are shown, and the one that they are compared with; has what puts these files into a folder, or goes on from there. */
function chooser({ name, points }: WorkspaceView, [at, since]: [number, number], run: string, chooseEvents: (at: number, since: number) => void): HTMLElement | false {
  if (points.length < 2) return false;
  const choice = (standard: string, some: WorkspaceView["points"], chosen: number): HTMLSelectElement => {
    const options = some.map(({ sequence, told: description }) => h("option", { value: String(sequence) }, `event ${sequence.toLocaleString("en")}${description === "" ? "" : `: ${oneLine(description, 60)}`}`));
    const select = h("select", { onchange: () => { chooseEvents(Number(atSelect.value), Number(sinceSelect.value)); } }, h("option", { value: "0" }, standard), ...options);
    select.value = String(chosen);
    return select;
  };
  const [atSelect, sinceSelect] = [choice("now", points, at), choice("the beginning", points.slice(0, -1), since)];
  const labels = [h("label", { class: "soft" }, "Files as they were at ", atSelect), h("label", { class: "soft" }, "compared with ", sinceSelect)];
  if (at === 0) return h("p", { class: "at" }, ...labels);
  const restore = copyButton(() => `%dive restore ${run} --to FOLDER --at ${at} --workspace ${name}`, { class: "db-button", title: "Puts them into a folder: copies the line to run" }, "Copy %dive restore");
  const fork = copyButton(() => `%dive fork ${run} --at ${at}`, { class: "db-button", title: "Another run from there: copies the line to run" }, "Copy %dive fork");
  return h("p", { class: "at" }, ...labels, restore, fork);
}

const part: Part = { style, make: files };

export default part;
