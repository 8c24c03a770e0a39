// Bundle of the files that a run has changed in its workspaces: a line for each file, which unfolds into its
// difference.

import type { Files, FileView, WorkspaceView } from "../protocol";
import { copyButton } from "../shared/copy";
import { FileSelections, type FileSelection } from "./selection";
import { FileTree } from "./tree";
import { h, setText, type View } from "../shared/dom";
import { button } from "../shared/element";
import { fileList } from "../shared/filediff";
import { plural } from "../shared/format";
import type { Host, Part } from "../shared/lazypart";
import type { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import style from "./files.css";

const POLL_INTERVAL = 1_000; // milliseconds between an answer and the next request
const ANSWER_TIMEOUT = 5_000; // milliseconds after which an answer is considered lost

/** View of the changed files. It requests them only while it is unfolded. */
export function files(model: Model, host: Host): View {
  const summary = h("summary", {}, "Files");
  const body = h("div", { class: "workspaces" });
  const element = h("details", { class: "db-workflow divebook-files", open: true, hidden: true }, summary, body);
  let version = 0;
  let askedAt: number | null = null;
  let isBehind = true;
  let at = 0; // event whose files are shown; 0 for the current files
  let since = 0; // event that they are compared with; 0 for the beginning
  let timer: ReturnType<typeof setTimeout> | undefined;

  const selections = new FileSelections(model, host);

  /** Request the current files, unless a request is pending, the last answer is too recent, or the files of an event are shown. */
  function poll(): void {
    isBehind = true;
    const isWaiting = askedAt !== null && Date.now() - askedAt < ANSWER_TIMEOUT;
    if (timer !== undefined || isWaiting || !element.open || at > 0) return;
    isBehind = false;
    askedAt = Date.now();
    host.files(version, onFiles, 0, since);
  }

  /** Show the files at an event, compared with another event. */
  function chooseEvents(event: number, before: number): void {
    at = event;
    since = before;
    version = 0;
    if (at > 0) host.files(0, onFiles, at, since);
    else {
      clearTimeout(timer);
      timer = undefined;
      askedAt = null;
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

  /** Show the files of all workspaces. Files that a person has folded or unfolded stay so. */
  function show(workspaces: readonly WorkspaceView[]): void {
    const total = workspaces.reduce((sum, item) => sum + item.total, 0);
    element.hidden = total === 0 && at === 0 && since === 0;
    setText(summary, `Changed files (${total.toLocaleString("en")})`);
    const paths = (selector: string): Set<string> => {
      const names = [...body.querySelectorAll(`${selector} > summary code`)];
      return new Set(names.map((name) => name.textContent));
    };
    const previousPaths = paths("details");
    const openPaths = paths("details[open]");
    const hadContent = body.childElementCount > 0;
    const run = model.header?.execution_id ?? "";
    const sections = workspaces.map((item) => {
      const isSelectable = since === 0 && item.folder !== "" && item.files.length > 0 && host.takeOver !== undefined;
      const selection = isSelectable ? selections.of(item, at) : undefined;
      return h("div", {}, workspace(item, chooser(item, [at, since], run, chooseEvents), selection), selection?.element);
    });
    body.replaceChildren(...sections);
    if (!hadContent) return;
    for (const details of body.querySelectorAll("details")) {
      const path = details.querySelector("summary code")?.textContent ?? "";
      if (previousPaths.has(path)) details.open = openPaths.has(path);
      else if (previousPaths.size > 0) details.open = false; // files that are new among others are folded
      details.dispatchEvent(new Event("toggle"));
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

/** Return the files of one workspace below the choice of events. `selection` adds a checkbox to each file. */
function workspace({ name, kind, folder, total, added, removed, files, left_out: leftOut }: WorkspaceView, choice: HTMLElement | false, selection?: FileSelection): HTMLElement {
  const origin = folder === "" ? "" : `, a copy of ${folder}`;
  const lines = h("span", { class: "lines" }, h("b", {}, `+${added.toLocaleString("en")}`), " ", h("i", {}, `−${removed.toLocaleString("en")}`));
  const head = h("p", { class: "head" }, h("strong", {}, name), h("span", { class: "soft" }, `${kind}${origin}`), lines);
  const more = total > files.length && h("p", { class: "soft" }, `${plural(total - files.length, "more file")}. %dive files lists all files.`);
  const omitted = leftOut.flatMap(({ path, reason }, place) => [place > 0 ? ", " : "", h("code", {}, path), ` (${reason})`]);
  const missing = leftOut.length > 0 && h("p", { class: "soft" }, "Not saved: ", ...omitted);
  const list = fileList(files, selection && ((file) => selection.checkbox(file)));
  const body = files.length > 1 ? h("div", { class: "lay" }, treeOf(files, list, selection), list) : list;
  return h("section", { class: "db-files" }, head, choice, body, more, missing);
}

/** Return the tree of the files of a workspace, which leads to the lines of the files in a list. */
function treeOf(files: readonly FileView[], list: HTMLElement, selection: FileSelection | undefined): HTMLElement {
  const open = (path: string): void => {
    const line = [...list.querySelectorAll("details")].find((one) => one.querySelector("summary code")?.textContent === path);
    if (line === undefined) return;
    line.open = true;
    line.scrollIntoView({ block: "nearest" });
  };
  if (selection === undefined) return new FileTree(files, { open }).element;
  const tree = new FileTree(files, { open, isApproved: (file) => selection.isSelected(file), approve: (file, isApproved) => { selection.select(file, isApproved); } });
  selection.onChange = () => { tree.update(); };
  return tree.element;
}

/**
 * Return the choice of the event whose files are shown, and of the event to compare with. For a past event, add
 * buttons that copy the commands to restore its files or to fork the run there.
 */
function chooser({ name, points }: WorkspaceView, [at, since]: [number, number], run: string, chooseEvents: (at: number, since: number) => void): HTMLElement | false {
  if (points.length < 2) return false;
  const choice = (standard: string, events: WorkspaceView["points"], selected: number): HTMLSelectElement => {
    const options = events.map(({ sequence, told: description }) => {
      const suffix = description === "" ? "" : `: ${oneLine(description, 60)}`;
      return h("option", { value: String(sequence) }, `event ${sequence.toLocaleString("en")}${suffix}`);
    });
    const onchange = (): void => { chooseEvents(Number(atSelect.value), Number(sinceSelect.value)); };
    const select = h("select", { onchange }, h("option", { value: "0" }, standard), ...options);
    select.value = String(selected);
    return select;
  };
  const atSelect = choice("the latest event", points, at);
  const sinceSelect = choice("the start", points.slice(0, -1), since);
  const stepButton = (sign: string, name: string, by: 1 | -1): HTMLElement => {
    // The newest event is first, below the choice "now".
    const place = atSelect.selectedIndex - by;
    const go = (): void => { chooseEvents(Number(atSelect.options[place]?.value ?? 0), Number(sinceSelect.value)); };
    return button(sign, go, { class: "db-button small", "aria-label": name, title: name, disabled: place < 0 || place >= atSelect.options.length });
  };
  const steps = [stepButton("‹", "Previous change", -1), stepButton("›", "Next change", 1)];
  const labels = [h("label", { class: "soft" }, "Files after ", atSelect), ...steps, h("label", { class: "soft" }, "compared with ", sinceSelect)];
  if (at === 0) return h("p", { class: "at" }, ...labels);
  const restoreLine = `%dive restore ${run} --to FOLDER --at ${at} --workspace ${name}`;
  const restoreTitle = "Copy the command that restores these files into a folder";
  const restore = copyButton(() => restoreLine, { class: "db-button", title: restoreTitle }, "Copy %dive restore");
  const forkLine = `%dive fork ${run} --at ${at}`;
  const forkTitle = "Copy the command that forks the run at this event";
  const fork = copyButton(() => forkLine, { class: "db-button", title: forkTitle }, "Copy %dive fork");
  return h("p", { class: "at" }, ...labels, restore, fork);
}

const part: Part = { style, make: files };

export default part;
