// Selection of the changed files that are applied to the original folder: a checkbox for each, and a button.

import type { FileView, WorkspaceView } from "../protocol";
import { h, setText } from "../shared/dom";
import { button } from "../shared/element";
import { plural } from "../shared/format";
import type { Host } from "../shared/lazypart";
import type { Model } from "../shared/model";

type TakeOver = Pick<Host, "takeOver">;

/** What is chosen in each workspace; it stays chosen while files come and change. */
export class Takings {
  readonly #known = new Map<string, Taking>();

  constructor(private readonly model: Model, private readonly host: TakeOver) {}

  /** Returns the choice among the files of a workspace as they were at an event, 0 for now. */
  of(shown: WorkspaceView, at: number): Taking {
    const taking = this.#known.get(shown.name) ?? new Taking(this.model, this.host);
    this.#known.set(shown.name, taking);
    taking.show(shown, at > 0 ? at : shown.points[0]?.sequence ?? 0);
    return taking;
  }

  /** Shows whether anything can be asked for now. */
  reach(): void {
    for (const taking of this.#known.values()) taking.tell();
  }
}

/** The choice among the files of one workspace. */
export class Taking {
  readonly element: HTMLElement;
  readonly #button: HTMLButtonElement;
  readonly #told = h("span", { class: "soft", role: "status" });
  readonly #left = new Set<string>(); // visible files that are not to be taken over
  readonly #named = new Set<string>(); // protected files that are
  #shown: WorkspaceView | null = null;
  #at = 0;
  #isAsking = false;

  constructor(private readonly model: Model, private readonly host: TakeOver) {
    this.#button = button("", () => { void this.#ask(); }, { class: "db-button" });
    this.element = h("p", { class: "at" }, this.#button, this.#told);
  }

  /** Takes up which files there are, and from which event. */
  show(shown: WorkspaceView, at: number): void {
    if (at !== this.#at) setText(this.#told, "");
    [this.#shown, this.#at] = [shown, at];
    this.tell();
  }

  /** Returns the tick of a file. */
  tick(file: FileView): HTMLElement {
    const { path } = file;
    const change = (): void => {
      const changed = file.protected ? this.#named : this.#left;
      if (file.protected ? box.checked : !box.checked) changed.add(path);
      else changed.delete(path);
      this.tell();
    };
    const box = h("input", { type: "checkbox", checked: this.#isChosen(file), "aria-label": `Take over ${path}`, onchange: change });
    if (file.protected) box.title = "A hidden file, or one of a version control system: taken over only if you select it";
    return box;
  }

  #isChosen(file: FileView): boolean {
    return file.protected ? this.#named.has(file.path) : !this.#left.has(file.path);
  }

  /** Says what the button does now. */
  tell(): void {
    const count = this.#chosen().length;
    setText(this.#button, `Take over ${plural(count, "file")}`);
    this.#button.title = `Writes them into ${this.#shown?.folder ?? ""}, all or none; what has changed there meanwhile stays`;
    this.#button.disabled = count === 0 || this.#isAsking || this.model.connected === "detached";
  }

  #chosen(): FileView[] {
    return (this.#shown?.files ?? []).filter((file) => this.#isChosen(file));
  }

  async #ask(): Promise<void> {
    this.#isAsking = true;
    this.tell();
    const paths = this.#chosen().map(({ path }) => path);
    const answer = await this.host.takeOver?.(this.#shown?.name ?? "", this.#at, paths);
    this.#isAsking = false;
    this.tell();
    if (answer !== undefined) setText(this.#told, answer.accepted ? answer.text : `Nothing was written: ${answer.text}`);
  }
}
