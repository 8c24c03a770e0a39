// Messages as the kernel sends them, made of few words.

import type { Delta, Header, SpanBlock, Welcome } from "../src/protocol";

export interface Row {
  id: number;
  kind?: string;
  path?: string;
  step?: string;
  type?: string;
  label?: string;
  given?: string;
  came?: string;
  item?: string;
  status?: string;
  note?: string;
  start: number;
  end?: number;
  iteration?: number;
  attempts?: number;
  tokens?: number;
  within?: number;
}

/** Returns rows as a block. */
export function block(rows: readonly Row[]): SpanBlock {
  const names = [""];
  const place = (text: string): number => {
    if (!names.includes(text)) names.push(text);
    return names.indexOf(text);
  };
  const texts = (pick: (row: Row) => string): number[] => rows.map((row) => place(pick(row)));
  const numbers = (pick: (row: Row) => number): number[] => rows.map(pick);
  return {
    names,
    id: numbers((row) => row.id),
    kind: texts((row) => row.kind ?? "step"),
    path: texts((row) => row.path ?? "main"),
    step: texts((row) => row.step ?? `s${row.id}`),
    type: texts((row) => row.type ?? "prompt"),
    label: texts((row) => row.label ?? ""),
    item: texts((row) => row.item ?? ""),
    given: texts((row) => row.given ?? ""),
    came: texts((row) => row.came ?? ""),
    status: texts((row) => row.status ?? ((row.end ?? -1) < 0 ? "running" : "completed")),
    note: texts((row) => row.note ?? ""),
    start: numbers((row) => row.start),
    end: numbers((row) => row.end ?? -1),
    iteration: numbers((row) => row.iteration ?? -1),
    visit: numbers(() => 1),
    attempts: numbers((row) => row.attempts ?? 1),
    tokens: numbers((row) => row.tokens ?? 0),
    sequence: numbers((row) => row.id + 1),
    within: numbers((row) => row.within ?? -1),
  };
}

export const HEADER: Header = {
  execution_id: "exec_1",
  workflow: "w",
  status: "running",
  live: true,
  error: "",
  started_us: 1_000_000,
  ended_us: null,
  now_us: 1_000_000,
  model_calls: 2,
  input_tokens: 1200,
  output_tokens: 34,
  cost: null,
  tool_calls: 0,
  spenders: [],
  gauges: [],
  doing: "worked",
  since_us: 1_000_000,
  worked_us: 0,
  waited_us: 0,
  paused_us: 0,
  stretches: [],
  progress: [],
  durability: "durable",
  commands: ["pause", "cancel"],
  failed: 0,
  ways: [],
  badge: "",
  waits: "",
  workspaces: 0,
  dashboards: [],
};

export function welcome(rows: readonly Row[], more: Partial<Welcome> = {}): Welcome {
  return {
    type: "welcome",
    view: "v",
    feed: "feed",
    since: 0,
    last: 10,
    origin_us: 1_000_000,
    total: rows.length,
    spans: block(rows),
    header: HEADER,
    failures: { total: 0, kept: "", shown: [] },
    questions: [],
    graph: { steps: [], edges: [] },
    streamed: [],
    ...more,
  };
}

export function delta(rows: readonly Row[], more: Partial<Delta> = {}): Delta {
  return {
    type: "delta",
    feed: "feed",
    after: 10,
    last: 11,
    origin_us: 1_000_000,
    total: 0,
    spans: block(rows),
    header: HEADER,
    failures: null,
    questions: [],
    streamed: [],
    ...more,
  };
}
