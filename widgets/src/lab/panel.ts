// Side panel of JupyterLab: the runs and the inbox of the current notebook, through its kernel.

import type { Browser } from "../runs/browser";
import type { RunsMessage } from "../runs/channel";
import type { Wire } from "../shared/channel";
import { h } from "../shared/dom";
import type { CellMaking, FrontTracker, Kernel, Palette, PanelApp, SideWidget, SideWidgetClass } from "./jupyterlab";
import { followComms } from "./comms";
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
export function addPanel(app: PanelApp, tracker: FrontTracker, parts: Parts, palette: Palette | null): void {
  const panel = new SidePanel(tracker, parts);
  const item = withTitle(new parts.widget({ node: panel.element }));
  app.shell.add(item, "right", { rank: 900 });
  const show = (toInbox: boolean): void => {
    app.shell.activateById(ID);
    panel.show(toInbox);
  };
  app.commands.addCommand(COMMANDS.runs, { label: "Runs of this notebook", caption: "Show the runs and the inbox beside the notebook", execute: () => { show(false); } });
  app.commands.addCommand(COMMANDS.inbox, { label: "Questions of runs", caption: "Show what waits for an answer beside the notebook", execute: () => { show(true); } });
  for (const command of Object.values(COMMANDS)) palette?.addItem({ command, category: "divebook" });
}

function withTitle(item: SideWidget): SideWidget {
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
  readonly #wires = new Map<Kernel, Wire<RunsMessage>>();
  #part: Promise<PanelPart> | undefined;
  #current: { wire: Wire<RunsMessage>; browser: Browser } | undefined;
  #toInbox = false;

  constructor(tracker: FrontTracker, parts: Parts) {
    [this.#tracker, this.#parts] = [tracker, parts];
    followComms<RunsMessage>(tracker, TARGET, (kernel, wire) => {
      this.#wires.set(kernel, wire);
      this.#update();
      return () => {
        this.#wires.delete(kernel);
        this.#update();
      };
    });
    tracker.currentChanged.connect(() => { this.#update(); });
    new IntersectionObserver(() => { this.#update(); }).observe(this.element); // its tab was pressed, or another one
    this.#update();
  }

  /** Shows the browser, and in it the inbox. */
  show(toInbox: boolean): void {
    this.#toInbox = toInbox;
    this.#update();
  }

  /** Shows what belongs to the notebook in front. */
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
    if (this.#tracker.currentWidget === null) return "Open a notebook: its runs are shown here.";
    return "This notebook's kernel has not used divebook yet. Run a cell with %load_ext divebook, or %dive runs, and its runs are shown here.";
  }

  async #showBrowser(wire: Wire<RunsMessage>): Promise<void> {
    this.#part ??= this.#parts.load().then((module) => module.default);
    const { style, Browser: BrowserClass } = await this.#part;
    if (this.#current !== undefined || this.#wireInFront() !== wire) return;
    const browser = new BrowserClass(wire, ({ execution_id: id }) => { this.#open(id); });
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

  /** Shows a run in a cell of its own, below the one that is chosen. */
  #open(id: string): void {
    const panel = this.#tracker.currentWidget;
    if (panel === null) return;
    this.#parts.actions.insertBelow(panel.content);
    panel.content.activeCell?.model.sharedModel.setSource(`%dive show ${id}`);
    void this.#parts.actions.run(panel.content, panel.sessionContext);
  }
}
