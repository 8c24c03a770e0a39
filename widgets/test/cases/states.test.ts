// States and messages of a recording, which Python replays too: one table of cases for both sides (tests/widgets/test_same_rules.py).

import { expect, test } from "vitest";
import { decode } from "../../src/lab/decode";
import { RecordedHost } from "../../src/lab/states";
import type { ConversationCall, ConversationPart, ConversationRequest, PackedRun, Recording, StateView } from "../../src/protocol";
import { block } from "../blocks";
import fixture from "../lab/saved.json";
import { casesOf, expectedBy } from "./cases";
import cases from "./states.json";

const saved: PackedRun = fixture.saved;
const EMPTY = { sequence: 0, status: "", error: "", inputs: {}, outputs: {}, variables: {}, paths: [], usage: {}, pending: [] };

/** Return a recording with this number of events. */
async function recordingOf(events: number): Promise<Recording> {
  const recording = await decode(saved);
  recording.events.sequence = Array.from({ length: events }, (_, row) => row + 1);
  return { ...recording, base: { ...EMPTY }, changes: recording.events.sequence.map(() => []) };
}

/** Return the state before the first event, and after each. */
async function statesOf({ base, changes }: { base: Partial<StateView>; changes: unknown[][][] }): Promise<StateView[]> {
  const recording = await recordingOf(changes.length);
  const host = new RecordedHost({ ...recording, base: { ...EMPTY, ...base }, changes });
  return Promise.all([0, ...recording.events.sequence].map((sequence) => host.stateAt(sequence)));
}

interface GivenRequest {
  sequences: number[];
  instructions?: string;
  sent: string[];
  answer?: string;
  calls?: [tool: string, callArguments: unknown, result: string][];
}

/** Return the messages of the latest request at an event. */
async function messagesAt({ at, requests }: { at: number; requests: GivenRequest[] }): Promise<string[]> {
  const part = (kind: ConversationPart["kind"], text: string): ConversationPart => ({ kind, text, call: "" });
  const plain = { model: "", finish: "", is_cached: false, input_tokens: 0, cached_tokens: 0, output_tokens: 0, cost: null, tools: [], output: "" };
  const all = requests.map(({ instructions = "", sent, answer }, id): ConversationRequest => ({
    ...plain, id, number: id + 1, instructions, sent: sent.map((text) => part("user", text)), answer: answer === undefined ? [] : [part("assistant", answer)],
  }));
  const calls = requests.flatMap(({ calls: list = [] }, id) => list.map(([tool, callArguments, result]): ConversationCall => ({
    id: -1, call: "", request: id + 1, tool, server: "", arguments: callArguments, result, lines: 1, outcome: result === "" ? "" : "returned", turn: -1, questions: [],
  })));
  const recording = await recordingOf(9);
  recording.spans = { ...block(requests.map((_, id) => ({ id, type: "agent_response", start: id }))), sequence: requests.map(({ sequences }) => sequences[0] ?? 0) };
  recording.members = requests.map(({ sequences }) => sequences);
  recording.conversations = [{ type: "conversation", view: "", id: 0, last: 9, agent: "a", thread: "", requests: all, calls, error: "" }];
  return (await new RecordedHost(recording).messagesAt(at)).parts.map(({ kind, text }) => `${kind} ${text}`);
}

test.each(casesOf({ states: cases.states }))("%s: %s", async (_rule, _name, one) => {
  const states = await statesOf(one.input as never);
  const expected = expectedBy(one) as (Partial<StateView> & { order?: string[] })[];
  expect(states).toHaveLength(expected.length);
  for (const [place, { order, ...state }] of expected.entries()) {
    expect(states[place]).toEqual(expect.objectContaining(state));
    if (order !== undefined) expect(Object.keys(states[place]?.variables ?? {})).toEqual(order);
  }
});

test.each(casesOf({ messages: cases.messages }))("%s: %s", async (_rule, _name, one) => {
  expect(await messagesAt(one.input as never)).toEqual(expectedBy(one));
});
