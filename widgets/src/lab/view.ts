// View of a saved run with stepping: the parts of the live view over a recording instead of a kernel.

import type { Ack, Conversation, Detail, QuestionView as Question, Recording, PackedRun } from "../protocol";
import { h, longText, type View } from "../shared/dom";
import { containKeys } from "../shared/keys";
import { type Host, lazyPart, type Load } from "../shared/lazypart";
import { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { moment } from "../shared/times";
import { valueText } from "../shared/values";
import { tabs } from "../live/tabs";
import { closedSign, closedText } from "../prompt/answers";
import { replaySection } from "../replay/stepping";
import "../replay/replay.css";
import { header } from "../head/header";
import { rowsOf } from "../head/progress";
import { decode, checkSaved } from "./decode";
import { RecordedHost } from "./states";
import "../live/live.css";
import "./lab.css";

const MOST_VALUES = 50;
const MOST_VALUE = 4_000;
const OPEN_BELOW = 1_500;

/** Shows what a notebook holds of a run; what cannot be shown is said, with the plain text beside it. */
export async function savedRun(data: unknown, plain: unknown, load: Load): Promise<View> {
  try {
    const saved = checkSaved(data);
    return recordedRun(saved, await decode(saved), load);
  } catch (error) {
    return refused(data, error instanceof Error ? error.message : String(error), typeof plain === "string" ? plain : "");
  }
}

function refused(data: unknown, why: string, plain: string): View {
  const store = typeof data === "object" && data !== null && "store" in data && typeof data.store === "string" ? data.store : "";
  const where = store === "" ? "" : ` Its log was in ${oneLine(store, 200)}.`;
  const told = h("p", { class: "db-refused", role: "note" }, `This run cannot be replayed here: ${oneLine(why, 300)}.${where}`);
  const element = h("div", { class: "divebook db-saved" }, told, plain === "" ? false : longText(plain));
  containKeys(element);
  return { element, destroy: () => undefined };
}

/** Shows a run whose recording is at hand, checked. */
export function recordedRun(saved: PackedRun, recording: Recording, load: Load): View {
  const model = new Model();
  const kept = new RecordedHost(recording);
  const root = h("div", { class: "divebook db-root db-saved" });
  containKeys(root);
  const rows = new Map(recording.spans.id.map((id, row) => [id, row]));
  const connection = {
    control: (): Promise<Ack> => Promise.resolve({ type: "ack", id: "", accepted: false, text: "this is a saved run" }),
  };
  const step = replaySection(() => kept, (at) => { model.setPosition(at); });
  const host: Host = {
    root,
    detail: (id, receive) => { void details(kept, recording.members[rows.get(id) ?? -1] ?? [], id).then(receive); },
    conversation: (id, _since, receive) => { receive(recorded(recording, id, kept.last)); },
    variables: (_version, receive) => { receive({ type: "variables", view: "", version: 1, variables: recording.variables }); },
    takeOver: undefined,
    files: (_version, receive) => { receive({ type: "files", view: "", version: 1, at: 0, since: 0, workspaces: recording.workspaces }); },
    sent: undefined,
    placeCard: () => undefined,
    gatherCards: () => undefined,
    control: connection.control,
    replay: (sequence) => { step.go(sequence); },
  };
  const picture = lazyPart(model, () => model.view === "timeline" && model.spans.total > 0, () => load("timeline"), host);
  const spread = lazyPart(model, () => rowsOf(model.header).some((step) => step.spread.length > 0), () => load("spread"), host);
  const failure = lazyPart(model, () => model.failures.total > 0, () => load("failure"), host);
  const workflow = lazyPart(model, () => model.graph.steps.length > 1, () => load("graph"), host);
  const chat = lazyPart(model, () => model.view === "chat", () => load("turn"), host);
  const values = lazyPart(model, () => recording.variables.length > 0, () => load("variables"), host);
  const files = lazyPart(model, () => recording.workspaces.length > 0, () => load("files"), host);
  const choice = tabs(model, { chat: [chat.element], timeline: [workflow.element, picture.element] });
  const views: View[] = [header(root, model, connection, spread), failure, answers(recording.questions), results(kept, recording), choice, chat, workflow, picture, files, values, step]; // as in the live view
  const [top, ...rest] = views.map((view) => view.element);
  root.append(top ?? "", h("p", { class: "db-origin", hidden: recording.sample === "" && saved.next === "" && recording.header.ended_us !== null }, origin(saved, recording), ...goingOn(saved)), ...rest);
  model.setConnected("connected");
  model.welcome({ type: "welcome", view: "", since: 0, last: kept.last, origin_us: recording.events.origin_us, total: recording.total, spans: recording.spans, header: { ...recording.header, live: false, commands: [], waits: "", ways: recording.header.ways.filter(({ name }) => name === "replay") }, failures: recording.failures, questions: recording.questions, graph: recording.graph, streamed: [] });
  const destroy = (): void => {
    views.forEach((view) => { view.destroy(); });
    root.remove();
  };
  return { element: root, destroy };
}

/** When it stood like this, what is not here, and where it is. */
function origin(saved: PackedRun, { sample, header: { ended_us: ended, now_us: now } }: Recording): string {
  const stood = ended === null ? `As it stood at ${moment(now)}; it may have gone on since. ` : "";
  return stood + (sample === "" ? "" : `${oneLine(sample, 200)}. The whole log is in ${oneLine(saved.store, 200)}. `);
}

/** Returns what was said in a turn, as far as the notebook has it. */
function recorded({ conversations }: Recording, id: number, last: number): Conversation {
  const found = conversations.find((one) => one.id === id);
  if (found !== undefined) return { ...found, last };
  return { type: "conversation", view: "", id, last, agent: "", thread: "", requests: [], calls: [], error: "What was said here is not in this file." };
}

async function details(host: RecordedHost, sequences: number[], id: number): Promise<Detail> {
  const tried = await Promise.allSettled(sequences.map((sequence) => host.eventAt(sequence)));
  const events = tried.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  return { type: "detail", view: "", id, events, error: events.length < sequences.length ? "Not all of its events are in this file." : "" };
}

/** What to type in order to go on, where there is a kernel and the store. */
function goingOn({ next }: PackedRun): Node[] {
  return next === "" ? [] : [document.createTextNode("To look again or go on: "), h("code", {}, oneLine(next, 200))];
}

/** The declared outputs; in an older recording of a run without any its variables, which have no pane there. */
function results(host: RecordedHost, recording: Recording): View {
  const body = h("div");
  const summary = h("summary");
  const element = h("details", { class: "db-workflow db-results", open: true, hidden: true }, summary, body);
  void host.stateAt(host.last).then(({ outputs, variables }) => {
    const declared = Object.entries(outputs);
    const values = declared.length > 0 ? declared : recording.variables.length > 0 ? [] : Object.entries(variables);
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
    const said = asked.status === "pending" ? "open" : `${closedSign(asked)} ${closedText(asked)}`;
    return h("div", { class: "db-asked" }, h("strong", {}, "? "), oneLine(asked.question, 2000), h("div", { class: "db-answer", dir: "auto" }, `→ ${said}`));
  });
  const element = h("details", { class: "db-workflow", open: true, hidden: entries.length === 0 }, h("summary", {}, `Questions (${entries.length})`), ...entries);
  return { element, destroy: () => { element.remove(); } };
}
