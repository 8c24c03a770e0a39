// Tree of the changed files of a workspace: folders, and files with their state. It leads to the difference of a file.

import { CHANGE_SIGNS } from "../constants";
import type { FileView } from "../protocol";
import { h, setText } from "../shared/dom";
import { setAttribute } from "../shared/element";

const SIGNS: Record<string, string> = CHANGE_SIGNS;

/** What the tree needs to know and to do. */
export interface TreeHost {
  /** Go to the difference of a file. */
  open: (path: string) => void;
  /** Return whether a file is approved; undefined if files cannot be approved. */
  isApproved?: (file: FileView) => boolean;
  /** Approve a file, or leave it out. */
  approve?: (file: FileView, isApproved: boolean) => void;
}

/** Folder with the files directly in it, and the folders in it. */
interface Folder {
  name: string;
  folders: Folder[];
  files: FileView[];
}

/** Group files by their folders. A folder that contains only another folder is one line with it: ``src/app``. */
export function foldersOf(files: readonly FileView[]): Folder {
  const root: Folder = { name: "", folders: [], files: [] };
  for (const file of files) {
    let folder = root;
    for (const name of file.path.split("/").slice(0, -1)) {
      let inner = folder.folders.find((one) => one.name === name);
      if (inner === undefined) {
        inner = { name, folders: [], files: [] };
        folder.folders.push(inner);
      }
      folder = inner;
    }
    folder.files.push(file);
  }
  return { ...root, folders: root.folders.map(joined) };
}

function joined(folder: Folder): Folder {
  const [only, ...others] = folder.folders;
  if (only !== undefined && others.length === 0 && folder.files.length === 0) return joined({ ...only, name: `${folder.name}/${only.name}` });
  return { ...folder, folders: folder.folders.map(joined) };
}

/** Tree of changed files. Arrow keys and J, K move; Enter opens a file, A approves it and X leaves it out. */
export class FileTree {
  readonly element: HTMLElement;
  readonly #host: TreeHost;
  readonly #items: HTMLElement[] = [];
  readonly #files = new Map<HTMLElement, { file: FileView; state: HTMLElement }>();

  constructor(files: readonly FileView[], host: TreeHost) {
    this.#host = host;
    const keys = ["↑ ↓ J K: select the next or previous file in the tree", "Enter: show the difference of the selected file"];
    if (host.approve !== undefined) keys.push("A: approve the selected file", "X: leave out the selected file");
    this.element = h("div", { class: "tree", role: "tree", "aria-label": "Changed files", "data-keys": keys.join("|"), onkeydown: (event: KeyboardEvent) => { this.#onKey(event); } });
    this.element.append(...this.#children(foldersOf(files), 0));
    this.#setTabStop([...this.#files.keys()][0]);
    this.update();
  }

  /** Show which files are approved. */
  update(): void {
    for (const [item, { file, state }] of this.#files) {
      const isApproved = this.#host.isApproved?.(file);
      const [sign, word] = isApproved === undefined ? ["", ""] : isApproved ? ["✓", ", approved"] : ["○", ", left out"];
      setText(state, sign);
      item.setAttribute("aria-label", `${file.path}, ${file.kind === "added" ? "new" : file.kind}${word}`);
    }
  }

  /** Move the tab stop to a file. */
  select(path: string): void {
    this.#setTabStop([...this.#files].find(([, { file }]) => file.path === path)?.[0]);
  }

  #children(folder: Folder, depth: number): HTMLElement[] {
    const folders = folder.folders.map((inner) => {
      const item = this.#item(h("div", { class: "r", style: `--d:${depth}` }, h("span", { "aria-hidden": "true" }, "▾"), h("span", { class: "soft name" }, inner.name)));
      setAttribute(item, "aria-expanded", "true");
      item.setAttribute("aria-label", `folder ${inner.name}`);
      item.append(h("div", { role: "group" }, ...this.#children(inner, depth + 1)));
      return item;
    });
    return [...folders, ...folder.files.map((file) => this.#file(file, depth))];
  }

  #file(file: FileView, depth: number): HTMLElement {
    const state = h("span", { class: "state", "aria-hidden": "true" });
    const lines = file.added === null ? "binary" : `+${file.added} −${file.removed ?? 0}`;
    const letter = h("span", { class: `letter ${file.kind}` }, SIGNS[file.kind] ?? "?");
    const line = h("div", { class: "r", style: `--d:${depth}`, onclick: () => { this.#open(item); } }, state, letter, h("span", { class: "name" }, file.path.split("/").at(-1) ?? ""), h("span", { class: "soft lines" }, lines));
    const item = this.#item(line);
    this.#files.set(item, { file, state });
    return item;
  }

  #item(line: HTMLElement): HTMLElement {
    const item = h("div", { role: "treeitem", tabindex: -1, "aria-selected": "false" }, line);
    this.#items.push(item);
    return item;
  }

  #open(item: HTMLElement): void {
    this.#setTabStop(item);
    const path = this.#files.get(item)?.file.path;
    if (path !== undefined) this.#host.open(path);
  }

  #setTabStop(item: HTMLElement | undefined): void {
    if (item === undefined) return;
    for (const other of this.#items) {
      other.tabIndex = other === item ? 0 : -1;
      other.setAttribute("aria-selected", String(other === item));
    }
  }

  #onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const item = (event.target as Element).closest<HTMLElement>("[role=treeitem]");
    if (item === null) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[key];
    const isFileStep = key === "j" || key === "k";
    const candidates = isFileStep ? this.#items.filter((one) => this.#files.has(one) || one === item) : this.#items;
    const next = step !== undefined ? candidates[candidates.indexOf(item) + step] : { Home: this.#items[0], End: this.#items.at(-1) }[key];
    const file = this.#files.get(item)?.file;
    if (next !== undefined) {
      this.#setTabStop(next);
      next.focus();
    } else if (key === "Enter" || key === " ") this.#open(item);
    else if ((key === "a" || key === "x") && file !== undefined && this.#host.approve !== undefined) {
      this.#host.approve(file, key === "a");
      this.update();
    } else if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
  }
}
