// What a page tells of questions outside of any cell, without a JupyterLab: kernels, notebooks and notices are this test's.

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { activateQuestions } from "../../src/lab/questions";
import type { App, CellActions, Comm, Kernel, LuminoWidgetClass, NoticeAction, Panel, SettingRegistry, Tracker } from "../../src/lab/jupyterlab";
import { h } from "../../src/shared/dom";
import type { Asked } from "../../src/protocol";
import { question } from "../prompt/questions";

class Signal<A> {
  readonly #slots: ((sender: unknown, args: A) => void)[] = [];
  connect = (slot: (sender: unknown, args: A) => void): boolean => this.#slots.push(slot) > 0;
  emit(args: A): void {
    for (const slot of this.#slots) slot(null, args);
  }
}

let shown: Map<string, { text: string; actions: NoticeAction[] }>;
let desktop: string[];
let scheduled: Signal<{ notebook: unknown }>;
let notebooks: Panel["content"][];
let activated: string[];
let openInbox: () => Promise<void>;

beforeEach(() => {
  shown = new Map();
  desktop = [];
  activated = [];
  scheduled = new Signal();
  document.body.replaceChildren();
  openInbox = () => Promise.resolve();
  vi.stubGlobal("MutationObserver", class { observe(): void { /* the pages of several tests share one title */ } });
  vi.stubGlobal("Notification", class {
    static readonly permission = "granted";
    readonly onclick = null;
    constructor(_: string, { body }: { body: string }) { desktop.push(body); }
  });
});

afterEach(() => { vi.unstubAllGlobals(); });

let panels: Panel[] = [];

class FakeKernel {
  readonly statusChanged = new Signal<string>();
  readonly disposed = new Signal<unknown>();
  readonly sent: { type: string; view: string }[] = [];
  comm: Comm | undefined;
  opened: (comm: Comm) => void = () => undefined;
  constructor(readonly id: string) {}
  readonly [key: string]: unknown;
  hasComm = (): boolean => false;
  registerCommTarget = (_: string, opened: (comm: Comm) => void): void => { this.opened = opened; };
  sendControlMessage = (): unknown => ({ done: Promise.resolve({ content: { comms: {} } }) });

  /** Opens its line and tells what is asked. */
  begin(asked: Asked[]): void {
    this.comm = { commId: `c-${this.id}`, onMsg: () => undefined, onClose: () => undefined, send: (data) => this.sent.push(data as { type: string; view: string }) };
    this.opened(this.comm);
    this.say({ type: "inbox", view: this.sent[0]?.view, last: 1, now_us: 0, hidden: 0, asked });
  }

  say(data: object): void {
    this.comm?.onMsg({ content: { data } });
  }
}

function page(isWanted: boolean, ...kernels: FakeKernel[]): HTMLElement {
  panels = kernels.map((kernel) => ({
    id: kernel.id,
    node: document.createElement("div"),
    title: { className: "" },
    isDisposed: false,
    sessionContext: { session: { kernel: kernel as unknown as Kernel }, kernelChanged: new Signal() },
    content: { widgets: [{ model: { id: `cell-${kernel.id}` }, node: document.createElement("div") }], activeCellIndex: 0, scrollToItem: () => Promise.resolve() },
  }) as unknown as Panel);
  const tracker: Tracker = { forEach: (visit) => { panels.forEach(visit); }, widgetAdded: new Signal<Panel>() };
  const notices = {
    emit: (text: string, _: string, { actions }: { actions: NoticeAction[] }): string => {
      shown.set(String(shown.size), { text, actions });
      return String(shown.size - 1);
    },
    dismiss: (id: string): void => { shown.delete(id); },
  };
  let item: HTMLElement = document.createElement("div");
  const widget = class {
    node: HTMLElement;
    constructor({ node }: { node: HTMLElement }) { this.node = item = node; }
    setHidden(isHidden: boolean): void { this.node.hidden = isHidden; }
    dispose(): void { this.node.remove(); }
  } as unknown as LuminoWidgetClass;
  const actions: CellActions = { executionScheduled: scheduled, executed: new Signal() };
  notebooks = panels.map(({ content }) => content);
  const settings = { get: () => ({ composite: isWanted }), changed: new Signal() };
  const registry: SettingRegistry = { load: () => Promise.resolve(settings) };
  const app = { shell: { activateById: (id: string) => { activated.push(id); } }, commands: { hasCommand: () => true, execute: () => openInbox() } } as unknown as App;
  activateQuestions(app, tracker, { notices, actions, widget }, { registerStatusItem: () => undefined }, registry);
  return item;
}

function asked(id: string, run = "exec_1", given: Parameters<typeof question>[0] = {}): Asked {
  return { execution_id: run, workflow: "audit", question: question({ interrupt_id: `${id}@${run}`, question: `${id}?`, ...given }), cell: "", trial_of: "" };
}

const texts = (): string[] => [...shown.values()].map(({ text }) => text);

test("a run that asks is told of once, however many kernels tell it, until it is answered", () => {
  const [one, other] = [new FakeKernel("one"), new FakeKernel("other")];
  const item = page(false, one, other);
  one.begin([asked("Keep")]);
  other.begin([asked("Keep")]);
  expect([texts(), item.textContent]).toEqual([["audit asks: Keep?"], "? 1 question"]);
  one.say({ type: "asked", after: 1, last: 2, now_us: 0, hidden: 0, asked: [asked("Drop", "exec_1", { raised_us: 2 })] });
  expect([texts(), item.textContent]).toEqual([["audit asks: Keep? (and 1 more question)"], "? 2 questions"]);
  const settled = [asked("Keep", "exec_1", { status: "resolved" }), asked("Drop", "exec_1", { status: "resolved" })];
  for (const kernel of [one, other]) kernel.say({ type: "asked", after: 2, last: 3, now_us: 0, hidden: 0, asked: settled });
  other.say({ type: "inbox", view: other.sent[0]?.view, last: 4, now_us: 0, hidden: 0, asked: [] });
  expect([texts(), item.textContent, item.hidden]).toEqual([[], "", true]);
});

test("the question of a what-if calls nobody", () => {
  const kernel = new FakeKernel("one");
  const item = page(false, kernel);
  kernel.begin([{ ...asked("Keep"), trial_of: "what-if" }]);
  expect([texts(), item.textContent]).toEqual([[], ""]);
});

test("only the notebook with the cell that asks is marked", () => {
  const [one, other] = [new FakeKernel("one"), new FakeKernel("other")];
  page(false, one, other);
  const [panelOne, panelOther] = panels;
  const cell = "cell-one";
  // Both kernels see the run, since both use the same store.
  one.begin([{ ...asked("Keep"), cell }]);
  other.begin([{ ...asked("Keep"), cell }]);
  expect([panelOne?.title.className, panelOther?.title.className]).toEqual(["divebook-asked", ""]);
});

test("where the cell of a question has no card any more, the way there leads to that in the inbox", async () => {
  vi.stubGlobal("requestAnimationFrame", (draw: () => void) => { queueMicrotask(draw); });
  const kernel = new FakeKernel("one");
  const item = page(false, kernel);
  kernel.begin([asked("Keep")]);
  const opened = new Promise<void>((resolve) => {
    openInbox = () => {
      const head = h("button", { class: "head" }, "Keep?");
      document.body.append(h("article", { class: "card", "data-question": "Keep@exec_1" }, head));
      head.addEventListener("focus", () => { resolve(); });
      return Promise.resolve();
    };
  });
  item.click();
  await opened;
  expect(document.activeElement?.textContent).toBe("Keep?");
});

test("an answer that stands out can be given in the notification, as long as it is the only question", () => {
  const kernel = new FakeKernel("one");
  page(false, kernel);
  const schema = { enum: ["keep it", "drop it"], default: "keep it" };
  kernel.begin([asked("Keep", "exec_1", { schema }), asked("Free", "exec_2", { raised_us: 2 }), asked("Two", "exec_3", { schema, raised_us: 3 }), asked("More", "exec_3", { raised_us: 4 })]);
  const labels = [...shown.values()].map(({ actions }) => actions.map(({ label }) => label));
  expect(labels).toEqual([["Go to question", "Answer: keep it", "Later"], ["Go to question", "Later"], ["Go to question", "Later"]]);
  [...shown.values()][0]?.actions[1]?.callback();
  expect(kernel.sent.at(-1)).toMatchObject({ type: "answer", interrupt_id: "Keep@exec_1", response: "keep it" });
});

test("what was asked long ago is counted, and told of by nothing else", () => {
  const kernel = new FakeKernel("one");
  const item = page(false, kernel);
  kernel.begin([asked("Old", "exec_1", { raised_us: -60_000_000 })]);
  expect([texts(), item.textContent]).toEqual([[], "? 1 question"]);
});

test("a kernel that restarts asks nothing any more", () => {
  const kernel = new FakeKernel("one");
  const item = page(false, kernel);
  kernel.begin([asked("Keep")]);
  kernel.statusChanged.emit("restarting");
  expect([texts(), item.textContent]).toEqual([[], ""]);
});

test("the desktop is told only where a person wants it and looks elsewhere", async () => {
  const [off, on, here] = [new FakeKernel("off"), new FakeKernel("on"), new FakeKernel("here")];
  const focus = vi.spyOn(document, "hasFocus").mockReturnValue(false);
  page(false, off);
  await Promise.resolve();
  off.begin([asked("Keep")]);
  expect(desktop).toEqual([]);
  page(true, on);
  await Promise.resolve();
  on.begin([asked("Keep")]);
  expect(desktop).toEqual(["audit asks: Keep?"]);
  focus.mockReturnValue(true);
  page(true, here);
  await Promise.resolve();
  here.begin([asked("Keep")]);
  expect(desktop).toEqual(["audit asks: Keep?"]);
});

test("whoever ran several cells and has done nothing since is brought to the question, others are not", () => {
  const [one, other] = [new FakeKernel("one"), new FakeKernel("other")];
  page(false, one, other);
  const run = (times: number): void => { for (let count = 0; count < times; count += 1) scheduled.emit({ notebook: notebooks[0] }); };
  one.begin([]);
  other.begin([]);
  run(1);
  one.say({ type: "asked", after: 1, last: 2, now_us: 0, hidden: 0, asked: [asked("One cell")] });
  run(1);
  other.say({ type: "asked", after: 1, last: 2, now_us: 0, hidden: 0, asked: [asked("Elsewhere", "exec_2")] });
  document.body.dispatchEvent(new Event("pointerdown", { bubbles: true }));
  one.say({ type: "asked", after: 2, last: 3, now_us: 0, hidden: 0, asked: [asked("Busy")] });
  expect(activated).toEqual([]);
  run(2);
  one.say({ type: "asked", after: 3, last: 4, now_us: 0, hidden: 0, asked: [asked("First"), asked("Second")] });
  expect(activated).toEqual(["one"]);
});
