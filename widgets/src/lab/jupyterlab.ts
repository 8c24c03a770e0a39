// Types of the parts of JupyterLab that the extension uses. The page provides the packages.
//
// They are written by hand, because the packages with the types (@jupyterlab/notebook, codemirror, apputils, ... 4.6) would be
// 273 more packages: measured, node_modules grows from 125 to 456 MB, `npm ci` takes 27 instead of 10 seconds, and `tsc` 17
// instead of 7. `Pick<>` types of them would still need about 70 lines here.

export interface Signal<S, A> {
  connect: (slot: (sender: S, args: A) => void) => boolean;
}

/** Comm with a kernel. */
export interface Comm {
  readonly commId: string;
  onMsg: (message: { content: { data: unknown } }) => void;
  onClose: () => void;
  send: (data: unknown) => unknown;
}

/** Reply on the control channel of a kernel. */
export interface ControlReply {
  content: { comms?: Record<string, unknown> };
}

export interface Kernel {
  readonly id: string;
  readonly clientId: string;
  readonly username: string;
  readonly status: string;
  hasComm: (id: string) => boolean;
  createComm: (target: string, id: string) => Comm;
  registerCommTarget: (target: string, opened: (comm: Comm) => void) => void;
  sendControlMessage: (request: object, expectsReply: true) => { done: Promise<ControlReply> };
  readonly connectionStatus: string;
  connectionStatusChanged: Signal<unknown, string>;
  /** Resolves when the kernel has described itself on the shell channel. */
  readonly info: Promise<unknown>;
  /** Not public. Sends the messages that are held back. */
  _sendPending?: () => void;
  statusChanged: Signal<unknown, string>;
  disposed: Signal<unknown, unknown>;
}

export interface CodeModel {
  type: string;
  mimeType: string;
  sharedModel: { getSource: () => string; changed: Signal<unknown, unknown> };
  mimeTypeChanged: Signal<unknown, unknown>;
}

/** Cell of a notebook. Code cells have an execution state, which is `running` for queued cells too. */
export interface Cell {
  readonly node: HTMLElement;
  model: CodeModel & { id: string; executionState?: string };
  /** Resolves when the cell has an editor. Cells out of sight have none. */
  readonly ready: Promise<void>;
  readonly editor: {
    lineCount: number;
    setCursorPosition: (place: { line: number; column: number }) => void;
    revealPosition: (place: { line: number; column: number }) => void;
    focus: () => void;
  } | null;
}

/** Title of a tab. */
export interface Title {
  className: string;
}

/** Notebook, as far as the highlighting of its code needs it. */
export interface CodePanel {
  context: { ready: Promise<void> };
  content: {
    codeMimetype: string;
    widgets: readonly { model: CodeModel }[];
    model: { cells: { changed: Signal<unknown, unknown> } } | null;
    modelChanged: Signal<unknown, unknown>;
  };
}

/** Notebook with its toolbar. */
export interface Panel extends CodePanel {
  readonly id: string;
  readonly node: HTMLElement;
  readonly title: Title;
  readonly isDisposed: boolean;
  sessionContext: {
    ready: Promise<void>;
    session: { kernel: Kernel | null } | null;
    restartKernel: () => Promise<void>;
    kernelChanged: Signal<unknown, { newValue: Kernel | null }>;
  };
  content: Omit<CodePanel["content"], "widgets"> & {
    widgets: readonly Cell[];
    activeCellIndex: number;
    readonly activeCell: { model: { sharedModel: { setSource: (source: string) => void } } } | null;
    rendermime: RenderMime;
    mode: "command" | "edit";
    scrollToItem: (index: number, align: "smart" | "center") => Promise<void>;
  };
}

/** Signals about the execution of cells in all notebooks. */
export interface CellActions {
  executionScheduled: Signal<unknown, { notebook: unknown }>;
  executed: Signal<unknown, unknown>;
}

/** The application. */
export interface App {
  shell: { activateById: (id: string) => void };
  commands: { hasCommand: (id: string) => boolean; execute: (id: string) => Promise<unknown> };
}

/** The application, as a plugin with a panel and commands needs it. */
export interface PanelApp extends App {
  shell: App["shell"] & { add: (widget: SideWidget, area: "right", options: { rank: number }) => void };
  commands: App["commands"] & { addCommand: (id: string, command: { label: string; caption: string; execute: () => void }) => unknown };
}

/** The application, as a plugin with a tile in the launcher needs it. */
export interface LauncherApp {
  serviceManager: { kernelspecs: { ready: Promise<void>; specs: { default: string } | null } };
  commands: {
    addCommand: (id: string, command: { label: string; caption: string; execute: (args: { cwd?: string }) => unknown }) => unknown;
    execute: (id: string, args: object) => Promise<unknown>;
  };
}

export interface Launcher {
  add: (item: { command: string; category: string; rank: number }) => unknown;
}

/** Notebook that was just created. */
export interface NewNotebook {
  context: {
    ready: Promise<void>;
    model: { sharedModel: { insertCells: (at: number, cells: object[]) => void; deleteCellRange: (from: number, to: number) => void } };
  };
}

/** Command palette. */
export interface Palette {
  addItem: (item: { command: string; category: string }) => unknown;
}

/** Tracker of the page's notebooks that knows the current one. */
export interface FrontTracker extends Tracker {
  readonly currentWidget: Panel | null;
  currentChanged: Signal<unknown, unknown>;
}

/** Functions that create a cell and run it. */
export interface CellCreation {
  insertBelow: (notebook: Panel["content"]) => void;
  run: (notebook: Panel["content"], session: Panel["sessionContext"]) => Promise<boolean>;
}

/** Functions that run cells of a notebook. They return whether all cells succeeded. */
export interface CellRuns {
  run: (notebook: Panel["content"], session: Panel["sessionContext"]) => Promise<boolean>;
  runAllAbove: (notebook: Panel["content"], session: Panel["sessionContext"]) => Promise<boolean>;
}

/** Button of a notification. */
export interface NoticeAction {
  label: string;
  displayType?: "accent" | "default" | "link";
  callback: () => void;
}

/** Notifications of JupyterLab. */
export interface Notices {
  emit: (message: string, type: "default", options: { autoClose: false; actions: NoticeAction[] }) => string;
  dismiss: (id: string) => void;
}

export interface StatusBar {
  registerStatusItem: (id: string, item: { item: LuminoWidget; align: "left" | "right"; rank: number; isActive: () => boolean }) => unknown;
}

/** Settings of a plugin. */
export interface Settings {
  get: (name: string) => { composite: unknown };
  changed: Signal<unknown, unknown>;
}

export interface SettingRegistry {
  load: (plugin: string) => Promise<Settings>;
}

export interface Tracker<P = Panel> {
  forEach: (visit: (panel: P) => void) => void;
  widgetAdded: Signal<unknown, P>;
}

/** Languages of editors. Each is loaded when first requested. */
export interface Languages {
  getLanguage: (mimeType: string) => Promise<unknown>;
}

export interface MimeModel {
  data: Record<string, unknown>;
  metadata: Record<string, unknown>;
  trusted: boolean;
  setData: (options: object) => void;
}

/** Widget of Lumino, as far as a renderer needs it. */
export interface LuminoWidget {
  readonly node: HTMLElement;
  readonly isDisposed: boolean;
  addClass(name: string): void;
  setHidden(isHidden: boolean): void;
  dispose(): void;
}
export type LuminoWidgetClass = new (options?: { node: HTMLElement }) => LuminoWidget;

/** Widget in a side area, with a tab. */
export interface SideWidget extends LuminoWidget {
  id: string;
  readonly title: { label: string; caption: string };
}
export type SideWidgetClass = new (options: { node: HTMLElement }) => SideWidget;

/** Widget that contains other widgets. */
export interface LuminoPanel extends LuminoWidget {
  addWidget(widget: LuminoWidget): void;
}
export type PanelClass = new () => LuminoPanel;

export interface Renderer extends LuminoWidget {
  renderModel(model: MimeModel): Promise<void>;
}

/** Registry of renderers for outputs. Each notebook has its own. */
export interface RenderMime {
  addFactory: (factory: { safe: boolean; mimeTypes: string[]; createRenderer: () => Renderer }, rank: number) => void;
  getFactory: (type: string) => unknown;
  createRenderer: (type: string) => Renderer;
  preferredMimeType: (data: Record<string, unknown>, safe: "any" | "ensure") => string | undefined;
}

/** JupyterLab's typesetter for formulas in LaTeX. */
export interface Typesetter {
  typeset: (element: HTMLElement) => Promise<void> | void;
}
