// Side panel of JupyterLab: the runs and the inbox of the current notebook, through its kernel.

import { RUNS_TARGET } from "../constants";
import type { Browser } from "../runs/browser";
import type { RunsMessage } from "../runs/channel";
import type { Wire } from "../shared/channel";
import { h } from "../shared/dom";
import type { CellCreation, FrontTracker, Kernel, Palette, PanelApp, SideWidget, SideWidgetClass } from "./jupyterlab";
import { followComms } from "./comms";
import "./panel.css";

const ID = "divebook-runs";
const COMMANDS = { runs: "divebook:runs", inbox: "divebook:inbox" };

/** Exports of the panel's bundle. */
export interface PanelBundle {
  style: string;
  Browser: typeof Browser;
}

/** Objects that JupyterLab provides to the panel. */
export interface Parts {
  actions: CellCreation;
  widget: SideWidgetClass;
  load: () => Promise<{ default: PanelBundle }>;
}

/** Add the side panel: a tab, two commands, and entries for them in the command palette if there is one. */
export function addPanel(app: PanelApp, tracker: FrontTracker, parts: Parts, palette: Palette | null): void {
  const panel = new SidePanel(tracker, parts);
  const item = withTitle(new parts.widget({ node: panel.element }));
  app.shell.add(item, "right", { rank: 900 });
  const show = (toInbox: boolean): void => {
    app.shell.activateById(ID);
    panel.show(toInbox);
  };
  app.commands.addCommand(COMMANDS.runs, {
    label: "Runs of this notebook",
    caption: "Show the runs and the inbox next to the notebook",
    execute: () => { show(false); },
  });
  app.commands.addCommand(COMMANDS.inbox, {
    label: "Open questions of runs",
    caption: "Show the open questions next to the notebook",
    execute: () => { show(true); },
  });
  for (const command of Object.values(COMMANDS)) palette?.addItem({ command, category: "divebook" });
}

function withTitle(item: SideWidget): SideWidget {
  item.id = ID;
  item.title.label = "Runs";
  item.title.caption = "divebook runs";
  return item;
}

/** Content of the panel: the run browser of the current notebook's kernel, or the reason why there is none. */
class SidePanel {
  readonly element = h("div", { class: "divebook-panel" });
  readonly #tracker: FrontTracker;
  readonly #parts: Parts;
  readonly #wires = new Map<Kernel, Wire<RunsMessage>>();
  #bundle: Promise<PanelBundle> | undefined;
  #current: { wire: Wire<RunsMessage>; browser: Browser } | undefined;
  #toInbox = false;

  constructor(tracker: FrontTracker, parts: Parts) {
    this.#tracker = tracker;
    this.#parts = parts;
    followComms<RunsMessage>(tracker, RUNS_TARGET, (kernel, wire) => {
      this.#wires.set(kernel, wire);
      this.#update();
      return () => {
        this.#wires.delete(kernel);
        this.#update();
      };
    });
    tracker.currentChanged.connect(() => { this.#update(); });
    new IntersectionObserver(() => { this.#update(); }).observe(this.element); // runs when the panel's tab is shown or hidden
    this.#update();
  }

  /** Show the run browser, and scroll to its inbox if asked to. */
  show(toInbox: boolean): void {
    this.#toInbox = toInbox;
    this.#update();
  }

  /** Show the browser of the current notebook. A hidden panel holds no browser, so that it receives no messages. */
  #update(): void {
    const wire = this.#wireInFront();
    const isVisible = this.element.offsetParent !== null;
    if (this.#current !== undefined && (this.#current.wire !== wire || !isVisible)) this.#removeBrowser();
    if (!isVisible) return;
    if (wire === undefined) this.element.replaceChildren(h("p", { class: "divebook-none" }, this.#emptyText()));
    else if (this.#current === undefined) void this.#showBrowser(wire);
    else this.#scrollToInbox(this.#current.browser);
  }

  #wireInFront(): Wire<RunsMessage> | undefined {
    const kernel = this.#tracker.currentWidget?.sessionContext.session?.kernel;
    return kernel === null || kernel === undefined ? undefined : this.#wires.get(kernel);
  }

  #emptyText(): string {
    if (this.#tracker.currentWidget === null) return "Open a notebook to see its runs here.";
    return "The kernel of this notebook has not loaded divebook yet. Run a cell with %load_ext divebook or %dive runs to see the runs here.";
  }

  async #showBrowser(wire: Wire<RunsMessage>): Promise<void> {
    this.#bundle ??= this.#parts.load().then((module) => module.default);
    const { style, Browser: BrowserClass } = await this.#bundle;
    if (this.#current !== undefined || this.#wireInFront() !== wire) return;
    const browser = new BrowserClass(wire, (runs) => { this.#open(runs.map(({ execution_id: id }) => id)); });
    this.#current = { wire, browser };
    this.element.replaceChildren(h("style", {}, style), browser.element);
    this.#scrollToInbox(browser);
  }

  #removeBrowser(): void {
    this.#current?.browser.destroy();
    this.#current = undefined;
    this.element.replaceChildren();
  }

  #scrollToInbox(browser: Browser): void {
    if (this.#toInbox) browser.toInbox();
    this.#toInbox = false;
  }

  /** Show a run, or the comparison of several runs, in a new cell below the active one. */
  #open(ids: readonly string[]): void {
    const panel = this.#tracker.currentWidget;
    if (panel === null) return;
    this.#parts.actions.insertBelow(panel.content);
    panel.content.activeCell?.model.sharedModel.setSource(`%dive ${ids.length > 1 ? "compare" : "show"} ${ids.join(" ")}`);
    void this.#parts.actions.run(panel.content, panel.sessionContext);
  }
}
