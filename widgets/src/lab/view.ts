// A saved run to look at and to step through: the live view's parts over a recording in place of a kernel.

import type { Ack, Conversation, Detail, QuestionView as Question, Recording, PackedRun } from "../protocol";
import { h, longText, type View } from "../shared/dom";
import { type Host, later, type Load } from "../shared/later";
import { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { valueText } from "../shared/values";
import { tabs } from "../live/tabs";
import { answerText } from "../prompt/answers";
import { Replay } from "../replay/replay";
import { reveal, timeline } from "../timeline";
import { header } from "../timeline/header";
import { decode, checkSaved } from "./decode";
import { RecordedHost } from "./states";
import "../live/live.css";
import "./lab.css";

const TERMINAL = ["completed", "failed", "cancelled", "moved", "continued_as_new", "picture"];
const MOST_VALUES = 50;
const MOST_VALUE = 4_000;
const OPEN_BELOW = 1_500;

/** Shows what a notebook holds of a run; what cannot be shown is said, with the plain text beside it. */
export async function savedRun(data: unknown, plain: unknown, load: Load): Promise<View> {
  try {
    const saved = checkSaved(data);
    const recording = await decode(saved);
    return TERMINAL.includes(saved.status) ? opened(saved, recording, load) : folded(saved, recording, load);
  } catch (error) {
    return refused(data, error instanceof Error ? error.message : String(error), typeof plain === "string" ? plain : "");
  }
}

/** A run that had not ended when it was saved: the live view, if there is one, stands above it. */
function folded(saved: PackedRun, recording: Recording, load: Load): View {
  let view: View | null = null;
  const told = `${oneLine(saved.workflow, 80)}: ${oneLine(saved.status, 20)} when its cell ended`;
  const element = h("details", { class: "divebook db-saved db-folded" }, h("summary", {}, told), h("p", { class: "db-origin" }, ...goingOn(saved)));
  element.addEventListener("toggle", () => {
    if (view !== null) return;
    view = opened(saved, recording, load);
    element.append(view.element);
  });
  return { element, destroy: () => { view?.destroy(); } };
}

function refused(data: unknown, why: string, plain: string): View {
  const store = typeof data === "object" && data !== null && "store" in data && typeof data.store === "string" ? data.store : "";
  const where = store === "" ? "" : ` Its log was in ${oneLine(store, 200)}.`;
  const told = h("p", { class: "db-refused", role: "note" }, `This run cannot be stepped through here: ${oneLine(why, 300)}.${where}`);
  const element = h("div", { class: "divebook db-saved" }, told, plain === "" ? false : longText(plain));
  return { element, destroy: () => undefined };
}

function opened(saved: PackedRun, recording: Recording, load: Load): View {
  const model = new Model();
  const kept = new RecordedHost(recording);
  const root = h("div", { class: "divebook db-root db-saved", "data-lm-suppress-shortcuts": "true" });
  const rows = new Map(recording.spans.id.map((id, row) => [id, row]));
  const connection = {
    control: (): Promise<Ack> => Promise.resolve({ type: "ack", id: "", accepted: false, text: "this is a saved run" }),
    detail: (id: number, receive: (detail: Detail) => void): void => { void details(kept, recording.members[rows.get(id) ?? -1] ?? [], id).then(receive); },
  };
  const step = stepping(kept);
  const picture = timeline(root, model, connection);
  const host: Host = {
    conversation: (id, _since, receive) => { receive(recorded(recording, id, kept.last)); },
    sent: undefined,
    placeCard: () => undefined,
    gatherCards: () => undefined,
    reveal: (id) => { reveal(model, picture, id); },
  };
  const workflow = later(model, () => model.graph.steps.length > 1, () => load("graph"), host);
  const chat = later(model, () => model.view === "chat", () => load("turn"), host);
  const choice = tabs(model, { chat: [chat.element], timeline: [workflow.element, picture.element] });
  const views: View[] = [header(model, connection), results(kept), answers(recording.questions), choice, chat, workflow, picture, step];
  const [top, ...rest] = views.map((view) => view.element);
  root.append(top ?? "", h("p", { class: "db-origin" }, origin(saved, recording), ...goingOn(saved)), ...rest);
  model.setConnected("connected");
  model.welcome({ type: "welcome", view: "", since: 0, last: kept.last, origin_us: recording.events.origin_us, total: recording.total, spans: recording.spans, header: { ...recording.header, live: false, commands: [], waits: "" }, questions: recording.questions, graph: recording.graph, streamed: [] });
  const destroy = (): void => {
    views.forEach((view) => { view.destroy(); });
    root.remove();
  };
  return { element: root, destroy };
}

function origin(saved: PackedRun, { events }: Recording): string {
  const cut = events.first > 1 ? ` Only its last ${events.type.length.toLocaleString("en")} of ${saved.total.toLocaleString("en")} events were saved; the others were in ${oneLine(saved.store, 200)}.` : "";
  return `Shown from the notebook itself: no kernel is needed.${cut}`;
}

/** Returns what was said in a turn, as far as the notebook has it. */
function recorded({ conversations }: Recording, id: number, last: number): Conversation {
  const found = conversations.find((one) => one.id === id);
  if (found !== undefined) return { ...found, last };
  return { type: "conversation", view: "", id, last, agent: "", thread: "", requests: [], calls: [], error: "What was said here is not in this notebook." };
}

async function details(host: RecordedHost, sequences: number[], id: number): Promise<Detail> {
  const tried = await Promise.allSettled(sequences.map((sequence) => host.eventAt(sequence)));
  const events = tried.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  return { type: "detail", view: "", id, events, error: events.length < sequences.length ? "Not all of its events are in this notebook." : "" };
}

/** What to type in order to go on, where there is a kernel and the store. */
function goingOn({ next }: PackedRun): Node[] {
  return next === "" ? [] : [document.createTextNode(" To look again or go on: "), h("code", {}, oneLine(next, 200))];
}

/** The declared outputs, or the variables where there are none. */
function results(host: RecordedHost): View {
  const body = h("div");
  const summary = h("summary");
  const element = h("details", { class: "db-workflow db-results", open: true, hidden: true }, summary, body);
  void host.stateAt(host.last).then(({ outputs, variables }) => {
    const declared = Object.entries(outputs);
    const values = declared.length > 0 ? declared : Object.entries(variables);
    element.hidden = values.length === 0;
    summary.textContent = `${declared.length > 0 ? "Outputs" : "Variables"} (${values.length})`;
    body.replaceChildren(...values.slice(0, MOST_VALUES).map(([name, value]) => {
      const text = valueText(value, MOST_VALUE, 2);
      return h("div", { class: "db-value" }, h("code", {}, oneLine(name, 80)), h("div", { class: "db-answer", dir: "auto" }, text));
    }));
    element.open = body.textContent.length < OPEN_BELOW;
  });
  return { element, destroy: () => { element.remove(); } };
}

/** What people were asked, and what they said. */
function answers(questions: Question[]): View {
  const entries = questions.map((asked) => {
    const by = asked.answered_by === null ? "" : ` (by ${oneLine(asked.answered_by, 80)})`;
    const said = ["pending", "expired", "cancelled"].includes(asked.status) ? asked.status : `${answerText(asked)}${by}`;
    return h("div", { class: "db-asked" }, h("strong", {}, "? "), oneLine(asked.question, 2000), h("div", { class: "db-answer", dir: "auto" }, `→ ${said}`));
  });
  const element = h("details", { class: "db-workflow", open: true, hidden: entries.length === 0 }, h("summary", {}, `Questions (${entries.length})`), ...entries);
  return { element, destroy: () => { element.remove(); } };
}

/** The replay, made when it is unfolded. */
function stepping(host: RecordedHost): View {
  let replay: Replay | null = null;
  const element = h("details", { class: "db-table db-stepping" }, h("summary", {}, "Step through"));
  element.addEventListener("toggle", () => {
    if (replay !== null) return;
    replay = new Replay(host);
    for (const block of host.blocks) replay.take(block);
    element.append(replay.element);
    replay.go(host.last);
  });
  return { element, destroy: () => { replay?.destroy(); } };
}
