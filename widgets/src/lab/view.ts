// View of a saved run with stepping: the parts of the live view, with a recording instead of a kernel.

import type { Ack, BundleName, Conversation, Detail, QuestionView as Question, Recording, PackedRun } from "../protocol";
import { h, longText, type View } from "../shared/dom";
import { containKeys } from "../shared/keys";
import { type Host, lazyPart, type Load } from "../shared/lazypart";
import { Model } from "../shared/model";
import { oneLine } from "../shared/text";
import { moment } from "../shared/times";
import { valueText } from "../shared/values";
import { tabs } from "../live/tabs";
import { questionOutcomeSign, questionOutcomeText } from "../prompt/outcome";
import { replaySection } from "../replay/stepping";
import "../replay/replay.css";
import { header } from "../head/header";
import { rowsOf } from "../head/progress";
import { decode, checkSaved } from "./decode";
import { RecordedHost } from "./states";
import "../live/live.css";
import "./lab.css";

const MAX_VALUES = 50;
const MAX_VALUE_LENGTH = 4_000;
const OPEN_BELOW = 1_500; // characters; longer results are folded

/** Return the view of a saved run. If the run cannot be shown, return a view with the reason and the plain text. */
export async function savedRun(data: unknown, plain: unknown, load: Load): Promise<View> {
  try {
    const packedRun = checkSaved(data);
    return recordedRun(packedRun, await decode(packedRun), load);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return refusedView(data, reason, typeof plain === "string" ? plain : "");
  }
}

/** Return a view with the reason why a run cannot be shown, its store and its plain text. */
function refusedView(data: unknown, reason: string, plain: string): View {
  const store = typeof data === "object" && data !== null && "store" in data && typeof data.store === "string" ? data.store : "";
  const storeText = store === "" ? "" : ` Its log was in ${oneLine(store, 200)}.`;
  const notice = h("p", { class: "db-refused", role: "note" }, `This run cannot be replayed here: ${oneLine(reason, 300)}.${storeText}`);
  const element = h("div", { class: "divebook db-saved" }, notice, plain === "" ? false : longText(plain));
  containKeys(element);
  return { element, destroy: () => undefined };
}

/** Return the view of a run from its checked recording. */
export function recordedRun(packedRun: PackedRun, recording: Recording, load: Load): View {
  const model = new Model();
  const recordedHost = new RecordedHost(recording);
  const root = h("div", { class: "divebook db-root db-saved" });
  containKeys(root);
  const rows = new Map(recording.spans.id.map((id, row) => [id, row]));
  const connection = {
    control: (): Promise<Ack> => Promise.resolve({ type: "ack", id: "", accepted: false, text: "A saved run cannot be controlled." }),
  };
  const step = replaySection(() => recordedHost, (at) => { model.setPosition(at); }, () => recording.header, true);
  model.on((change) => {
    if (change === "selection" && model.selected !== null) step.follow(model.spans.number(model.selected, "sequence"));
  });
  const host: Host = {
    root,
    detail: (id, receive) => { void details(recordedHost, recording.members[rows.get(id) ?? -1] ?? [], id).then(receive); },
    conversation: (id, _since, receive) => { receive(recordedConversation(recording, id, recordedHost.last)); },
    variables: (_version, receive) => { receive({ type: "variables", view: "", version: 1, variables: recording.variables }); },
    takeOver: undefined,
    files: (_version, receive) => { receive({ type: "files", view: "", version: 1, at: 0, since: 0, workspaces: recording.workspaces }); },
    sent: undefined,
    placeCard: () => undefined,
    gatherCards: () => undefined,
    control: connection.control,
    replay: (sequence) => { step.go(sequence); },
  };
  // Parts are separate bundles. Each is loaded as soon as the recording has something for it.
  const part = (name: BundleName, isNeeded: () => boolean): View => lazyPart(model, isNeeded, () => load(name), host);
  const timeline = part("timeline", () => model.view === "timeline" && model.spans.total > 0);
  const spread = part("spread", () => rowsOf(model.header).some((step) => step.spread.length > 0));
  const failure = part("failure", () => model.failures.total > 0);
  const workflow = part("graph", () => model.graph.steps.length > 1);
  const chat = part("turn", () => model.view === "chat");
  const variables = part("variables", () => recording.variables.length > 0);
  const files = part("files", () => recording.workspaces.length > 0);
  const choice = tabs(model, { chat: [chat.element], timeline: [workflow.element, timeline.element] });
  const head = header(root, model, connection, spread);
  const questions = questionList(recording.questions);
  const outputs = results(recordedHost, recording);
  const views: View[] = [head, failure, questions, outputs, choice, chat, workflow, timeline, files, variables, step]; // as in the live view
  const [top, ...rest] = views.map((view) => view.element);
  const isComplete = recording.sample === "" && packedRun.next === "" && recording.header.ended_us !== null;
  const origin = h("p", { class: "db-origin", hidden: isComplete }, originText(packedRun, recording), ...resumeHint(packedRun));
  root.append(top ?? "", origin, ...rest);
  model.setConnected("connected");
  // A saved run cannot be controlled. Of the recovery options only the replay works without a kernel.
  const ways = recording.header.ways.filter(({ name }) => name === "replay");
  model.welcome({
    type: "welcome",
    view: "",
    feed: "",
    since: 0,
    last: recordedHost.last,
    origin_us: recording.events.origin_us,
    total: recording.total,
    spans: recording.spans,
    header: { ...recording.header, live: false, commands: [], waits: "", ways },
    failures: recording.failures,
    questions: recording.questions,
    graph: recording.graph,
    streamed: [],
  });
  const destroy = (): void => {
    views.forEach((view) => { view.destroy(); });
    root.remove();
  };
  return { element: root, destroy };
}

/** Return the time of saving if the run had not ended, the saved part of the run, and the place of its whole log. */
function originText(packedRun: PackedRun, { sample, header: { ended_us: ended, now_us: now } }: Recording): string {
  const asOf = ended === null ? `This is the state at ${moment(now)}. The run may have continued since then. ` : "";
  return asOf + (sample === "" ? "" : `${oneLine(sample, 200)}. The whole log is in ${oneLine(packedRun.store, 200)}. `);
}

/** Return the recorded conversation of a turn, or one with an error. */
function recordedConversation({ conversations }: Recording, id: number, last: number): Conversation {
  const conversation = conversations.find((candidate) => candidate.id === id);
  if (conversation !== undefined) return { ...conversation, last };
  return { type: "conversation", view: "", id, last, agent: "", thread: "", requests: [], calls: [], error: "The messages of this event are not in this file." };
}

/** Return the events of an operation, as far as the recording contains them. */
async function details(host: RecordedHost, sequences: number[], id: number): Promise<Detail> {
  const outcomes = await Promise.allSettled(sequences.map((sequence) => host.eventAt(sequence)));
  const events = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
  return { type: "detail", view: "", id, events, error: events.length < sequences.length ? "Some events of this call are not in this file." : "" };
}

/** Return the line to type in order to continue the run, if a kernel and the store are available. */
function resumeHint({ next }: PackedRun): Node[] {
  return next === "" ? [] : [document.createTextNode("To open or continue this run: "), h("code", {}, oneLine(next, 200))];
}

/** Return the declared outputs. Older recordings without outputs show the variables here, because they have no pane for variables. */
function results(host: RecordedHost, recording: Recording): View {
  const body = h("div");
  const summary = h("summary");
  const element = h("details", { class: "db-workflow db-results", open: true, hidden: true }, summary, body);
  void host.stateAt(host.last).then(({ outputs, variables }) => {
    const declaredOutputs = Object.entries(outputs);
    let values = declaredOutputs;
    if (declaredOutputs.length === 0 && recording.variables.length === 0) values = Object.entries(variables);
    element.hidden = values.length === 0;
    summary.textContent = `${declaredOutputs.length > 0 ? "Outputs" : "Variables"} (${values.length})`;
    body.replaceChildren(...values.slice(0, MAX_VALUES).map(([name, value]) => {
      const text = valueText(value, MAX_VALUE_LENGTH, 2);
      return h("div", { class: "db-value" }, h("code", {}, oneLine(name, 80)), h("div", { class: "db-answer", dir: "auto" }, text));
    }));
    element.open = body.textContent.length < OPEN_BELOW;
  });
  return { element, destroy: () => { element.remove(); } };
}

/** Return the list of questions and answers. */
function questionList(questions: Question[]): View {
  const entries = questions.map((question) => {
    const outcome = question.status === "pending" ? "open" : `${questionOutcomeSign(question)} ${questionOutcomeText(question)}`;
    const answer = h("div", { class: "db-answer", dir: "auto" }, `→ ${outcome}`);
    return h("div", { class: "db-asked" }, h("strong", {}, "? "), oneLine(question.question, 2000), answer);
  });
  const element = h("details", { class: "db-workflow", open: true, hidden: entries.length === 0 }, h("summary", {}, `Questions (${entries.length})`), ...entries);
  return { element, destroy: () => { element.remove(); } };
}
