// Side panel of JupyterLab: the runs and the inbox of the current notebook, through its kernel.

import type { Browser } from "../runs/browser";
import type { Told } from "../runs/channel";
import type { Wire } from "../shared/channel";
import { h } from "../shared/dom";
import type { CellMaking, FrontTracker, Kernel, Palette, PanelApp, SideWidget, SideWidgetClass } from "./jupyterlab";
import { followLines } from "./lines";
import "./panel.css";

const ID = "divebook-runs";
const TARGET = "divebook.runs";
const COMMANDS = { runs: "divebook:runs", inbox: "divebook:inbox" };

/** What the bundle of the panel exports. */
export interface PanelPart {
  style: string;
  Browser: typeof Browser;
}

/** What the page shares. */
export interface Parts {
  actions: CellMaking;
  widget: SideWidgetClass;
  load: () => Promise<{ default: PanelPart }>;
}

/** Offers the side panel from now on: by its tab, and by two commands, which a palette lists where there is one. */
export function offerPanel(app: PanelApp, tracker: FrontTracker, parts: Parts, palette: Palette | null): void {
  const panel = new SidePanel(tracker, parts);
  const item = named(new parts.widget({ node: panel.element }));
  app.shell.add(item, "right", { rank: 900 });
  const show = (toInbox: boolean): void => {
    app.shell.activateById(ID);
    panel.show(toInbox);
  };
  app.commands.addCommand(COMMANDS.runs, { label: "Runs of this notebook", caption: "Show the runs and the inbox beside the notebook", execute: () => { show(false); } });
  app.commands.addCommand(COMMANDS.inbox, { label: "Questions of runs", caption: "Show what waits for an answer beside the notebook", execute: () => { show(true); } });
  for (const command of Object.values(COMMANDS)) palette?.addItem({ command, category: "divebook" });
}

function named(item: SideWidget): SideWidget {
  item.id = ID;
  item.title.label = "Runs";
  item.title.caption = "Runs of divebook";
  return item;
}

/** What stands in the panel: the browser of the kernel in front, or why there is none. */
class SidePanel {
  readonly element = h("div", { class: "divebook-panel" });
  readonly #tracker: FrontTracker;
  readonly #parts: Parts;
  readonly #wires = new Map<Kernel, Wire<Told>>();
  #part: Promise<PanelPart> | undefined;
  #shown: { wire: Wire<Told>; browser: Browser } | undefined;
  #toInbox = false;

  constructor(tracker: FrontTracker, parts: Parts) {
    [this.#tracker, this.#parts] = [tracker, parts];
    followLines<Told>(tracker, TARGET, (kernel, wire) => {
      this.#wires.set(kernel, wire);
      this.#look();
      return () => {
        this.#wires.delete(kernel);
        this.#look();
      };
    });
    tracker.currentChanged.connect(() => { this.#look(); });
    new IntersectionObserver(() => { this.#look(); }).observe(this.element); // its tab was pressed, or another one
    this.#look();
  }

  /** Shows the browser, and in it the inbox. */
  show(toInbox: boolean): void {
    this.#toInbox = toInbox;
    this.#look();
  }

  /** Shows what belongs to the notebook in front. */
  #look(): void {
    const wire = this.#wireInFront();
    const isSeen = this.element.offsetParent !== null;
    if (this.#shown !== undefined && (this.#shown.wire !== wire || !isSeen)) this.#leave();
    if (!isSeen) return;
    if (wire === undefined) this.element.replaceChildren(h("p", { class: "divebook-none" }, this.#why()));
    else if (this.#shown === undefined) void this.#begin(wire);
    else this.#reach(this.#shown.browser);
  }

  #wireInFront(): Wire<Told> | undefined {
    const kernel = this.#tracker.currentWidget?.sessionContext.session?.kernel;
    return kernel === null || kernel === undefined ? undefined : this.#wires.get(kernel);
  }

  #why(): string {
    if (this.#tracker.currentWidget === null) return "Open a notebook: its runs are shown here.";
    return "This notebook's kernel has not used divebook yet. Run a cell with %load_ext divebook, or %dive runs, and its runs are shown here.";
  }

  async #begin(wire: Wire<Told>): Promise<void> {
    this.#part ??= this.#parts.load().then((module) => module.default);
    const { style, Browser: Kind } = await this.#part;
    if (this.#shown !== undefined || this.#wireInFront() !== wire) return;
    const browser = new Kind(wire, ({ execution_id: id }) => { this.#open(id); });
    this.#shown = { wire, browser };
    this.element.replaceChildren(h("style", {}, style), browser.element);
    this.#reach(browser);
  }

  #leave(): void {
    this.#shown?.browser.destroy();
    this.#shown = undefined;
    this.element.replaceChildren();
  }

  #reach(browser: Browser): void {
    if (this.#toInbox) browser.toInbox();
    this.#toInbox = false;
  }

  /** Shows a run in a cell of its own, below the one that is chosen. */
  #open(id: string): void {
    const panel = this.#tracker.currentWidget;
    if (panel === null) return;
    this.#parts.actions.insertBelow(panel.content);
    panel.content.activeCell?.model.sharedModel.setSource(`%dive show ${id}`);
    void this.#parts.actions.run(panel.content, panel.sessionContext);
  }
}
