// Selection of the changed files to take over into the original folder: a checkbox for each file, and a button.

import type { FileView, WorkspaceView } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import type { Host } from "../shared/lazypart";
import type { Model } from "../shared/model";

type TakeOverHost = Pick<Host, "takeOver">;

/** Selections of all workspaces. They are kept while files change. */
export class FileSelections {
  readonly #selections = new Map<string, FileSelection>();

  constructor(private readonly model: Model, private readonly host: TakeOverHost) {}

  /** Return the selection among the files of a workspace at an event; 0 means the current files. */
  of(workspace: WorkspaceView, at: number): FileSelection {
    const selection = this.#selections.get(workspace.name) ?? new FileSelection(this.model, this.host);
    this.#selections.set(workspace.name, selection);
    selection.setWorkspace(workspace, at > 0 ? at : workspace.points[0]?.sequence ?? 0);
    return selection;
  }

  /** Update the buttons after a change of the connection. */
  refresh(): void {
    for (const selection of this.#selections.values()) selection.refresh();
  }
}

/** Selection among the files of one workspace. Files are selected by default, protected files are not. */
export class FileSelection {
  readonly element: HTMLElement;
  readonly #button: HTMLButtonElement;
  readonly #counts = h("span", { class: "soft" });
  readonly #result = h("span", { class: "soft", role: "status" });
  readonly #deselected = new Set<string>(); // unprotected files that are not selected
  readonly #selectedProtected = new Set<string>(); // protected files that are selected
  readonly #boxes = new Map<string, HTMLInputElement>();
  /** Called after each change of the selection. */
  onChange: () => void = () => undefined;
  #workspace: WorkspaceView | null = null;
  #at = 0;
  #isAsking = false;

  constructor(private readonly model: Model, private readonly host: TakeOverHost) {
    this.#button = button("", () => { void this.#takeOver(); }, { class: "db-button" });
    this.element = h("p", { class: "at act" }, this.#button, this.#counts, this.#result);
  }

  /** Set the files to select from, and their event. */
  setWorkspace(workspace: WorkspaceView, at: number): void {
    if (at !== this.#at) setText(this.#result, "");
    this.#workspace = workspace;
    this.#at = at;
    this.refresh();
  }

  /** Return the checkbox of a file. */
  checkbox(file: FileView): HTMLElement {
    const box = h("input", { type: "checkbox", checked: this.isSelected(file), "aria-label": `Apply ${file.path}`, onchange: () => { this.select(file, box.checked); } });
    this.#boxes.set(file.path, box);
    if (file.protected) box.title = "This file is hidden or belongs to a version control system. It is applied only if you select it.";
    return box;
  }

  /** Select a file, or leave it out. */
  select(file: FileView, isSelected: boolean): void {
    // The sets hold the files whose state differs from the default.
    const exceptions = file.protected ? this.#selectedProtected : this.#deselected;
    if (isSelected === file.protected) exceptions.add(file.path);
    else exceptions.delete(file.path);
    const box = this.#boxes.get(file.path);
    if (box !== undefined) box.checked = isSelected;
    this.refresh();
    this.onChange();
  }

  isSelected(file: FileView): boolean {
    return file.protected ? this.#selectedProtected.has(file.path) : !this.#deselected.has(file.path);
  }

  /** Update the text and state of the button. */
  refresh(): void {
    const count = this.#selectedFiles().length;
    const leftOut = (this.#workspace?.files.length ?? 0) - count;
    setText(this.#button, `Apply ${plural(count, "file")}`);
    setText(this.#counts, leftOut > 0 ? `${count} approved, ${leftOut} left out` : "");
    this.#button.title = `Writes the approved files into ${this.#workspace?.folder ?? ""}. If one of them has changed there in the meantime, nothing is written.`;
    this.#button.disabled = count === 0 || this.#isAsking || this.model.connected === "detached";
  }

  #selectedFiles(): FileView[] {
    return (this.#workspace?.files ?? []).filter((file) => this.isSelected(file));
  }

  /** Take over the selected files, and show the result. */
  async #takeOver(): Promise<void> {
    this.#isAsking = true;
    this.refresh();
    const paths = this.#selectedFiles().map(({ path }) => path);
    const answer = await this.host.takeOver?.(this.#workspace?.name ?? "", this.#at, paths);
    this.#isAsking = false;
    this.refresh();
    if (answer !== undefined) setText(this.#result, answer.accepted ? answer.text : `Nothing was written: ${answer.text}`);
  }
}
