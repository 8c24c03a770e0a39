// Selection of the changed files that are applied to the original folder: a checkbox for each, and a button.

import type { FileView, WorkspaceView } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import type { Host } from "../shared/later";
import type { Model } from "../shared/model";

type TakeOverHost = Pick<Host, "takeOver">;

/** What is chosen in each workspace; it stays chosen while files come and change. */
export class FileSelections {
  readonly #selections = new Map<string, FileSelection>();

  constructor(private readonly model: Model, private readonly host: TakeOverHost) {}

  /** Returns the choice among the files of a workspace as they were at an event, 0 for now. */
  of(workspace: WorkspaceView, at: number): FileSelection {
    const selection = this.#selections.get(workspace.name) ?? new FileSelection(this.model, this.host);
    this.#selections.set(workspace.name, selection);
    selection.setWorkspace(workspace, at > 0 ? at : workspace.points[0]?.sequence ?? 0);
    return selection;
  }

  /** Shows whether anything can be asked for now. */
  refresh(): void {
    for (const selection of this.#selections.values()) selection.refresh();
  }
}

/** The choice among the files of one workspace. */
export class FileSelection {
  readonly element: HTMLElement;
  readonly #button: HTMLButtonElement;
  readonly #result = h("span", { class: "soft", role: "status" });
  readonly #deselected = new Set<string>(); // visible files that are not to be taken over
  readonly #selectedProtected = new Set<string>(); // protected files that are
  #workspace: WorkspaceView | null = null;
  #at = 0;
  #isAsking = false;

  constructor(private readonly model: Model, private readonly host: TakeOverHost) {
    this.#button = button("", () => { void this.#takeOver(); }, { class: "db-button" });
    this.element = h("p", { class: "at" }, this.#button, this.#result);
  }

  /** Takes up which files there are, and from which event. */
  setWorkspace(workspace: WorkspaceView, at: number): void {
    if (at !== this.#at) setText(this.#result, "");
    [this.#workspace, this.#at] = [workspace, at];
    this.refresh();
  }

  /** Returns the tick of a file. */
  checkbox(file: FileView): HTMLElement {
    const { path } = file;
    const change = (): void => {
      const exceptions = file.protected ? this.#selectedProtected : this.#deselected;
      if (file.protected ? box.checked : !box.checked) exceptions.add(path);
      else exceptions.delete(path);
      this.refresh();
    };
    const box = h("input", { type: "checkbox", checked: this.#isSelected(file), "aria-label": `Take over ${path}`, onchange: change });
    if (file.protected) box.title = "A hidden file, or one of a version control system: taken over only if you select it";
    return box;
  }

  #isSelected(file: FileView): boolean {
    return file.protected ? this.#selectedProtected.has(file.path) : !this.#deselected.has(file.path);
  }

  /** Says what the button does now. */
  refresh(): void {
    const count = this.#selectedFiles().length;
    setText(this.#button, `Take over ${plural(count, "file")}`);
    this.#button.title = `Writes them into ${this.#workspace?.folder ?? ""}, all or none; what has changed there meanwhile stays`;
    this.#button.disabled = count === 0 || this.#isAsking || this.model.connected === "detached";
  }

  #selectedFiles(): FileView[] {
    return (this.#workspace?.files ?? []).filter((file) => this.#isSelected(file));
  }

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
