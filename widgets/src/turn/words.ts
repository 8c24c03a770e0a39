// Short descriptions of calls and requests.

import type { ConversationCall, ConversationRequest } from "../protocol";
import { plural } from "../shared/format";
import { oneLine } from "../shared/text";
import { valueText } from "../shared/values";

const WIDTH = 200;

/** Returns the arguments of a call on one line: a single text as it is. */
export function argumentsText(given: unknown, tool = ""): string {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return oneLine(valueText(given, WIDTH), WIDTH);
  const entries = Object.entries(given);
  const { agent, description } = given as { agent?: unknown; description?: unknown };
  if (tool === "assign_work" && typeof agent === "string") return oneLine(`to ${agent}: ${valueText(description, WIDTH)}`, WIDTH);
  const [only] = entries;
  if (entries.length === 1 && only !== undefined && typeof only[1] === "string") return oneLine(only[1], WIDTH);
  return oneLine(entries.map(([name, value]) => `${name}=${valueText(value, WIDTH)}`).join("  "), WIDTH);
}

const BY_RULE = "A rule denies"; // divebook/engine/approvals.py

/** Returns that a call was denied, by whom, and why. */
function denial({ result }: ConversationCall): string {
  const [, reason = ""] = /^[^:]*: (.*)$/s.exec(result) ?? [];
  const by = result.startsWith(BY_RULE) ? "denied by a rule" : "denied";
  return reason === "" ? by : oneLine(`${by}: ${reason}`, 80);
}

const OUTCOMES = { failed: "failed", denied: "denied", retry: "tried again", unknown: "not known", returned: "", "": "" } as const;

/** Returns what came of a call: short results as they are, long ones by their size. */
export function outcomeText(call: ConversationCall): string {
  if (call.outcome === "failed" && !call.result.includes("\n")) return oneLine(call.result, 60) || "failed";
  if (call.outcome === "denied") return denial(call);
  const word = OUTCOMES[call.outcome];
  if (word !== "") return word;
  if (call.result === "") return call.outcome === "returned" ? "nothing" : "";
  if (call.turn >= 0) return "answered";
  if (call.lines > 1) return plural(call.lines, "line");
  return call.result.length <= 40 ? oneLine(call.result, 40) : plural(call.result.length, "character");
}

/** Returns what a request did, for the list of all: a single call with its arguments. */
export function deedOf(request: ConversationRequest, isRunning: boolean, calls: readonly ConversationCall[]): string {
  const names = request.answer.filter(({ kind }) => kind === "call").map(({ text }) => text);
  const [only] = calls;
  if (names.length === 1 && only !== undefined) return oneLine(`${only.tool} ${argumentsText(only.arguments, only.tool)}`, 60);
  if (names.length > 0) return oneLine(counted(names).join(", "), 60);
  if (isRunning) return "writes …";
  const said = request.answer.find(({ kind }) => kind === "assistant");
  if (said === undefined) return "no answer";
  return request.output !== "" && /^[[{]/.test(said.text) ? "answers with data" : oneLine(said.text, 60);
}

function counted(names: readonly string[]): string[] {
  return [...new Set(names)].map((name) => {
    const count = names.filter((other) => other === name).length;
    return count > 1 ? `${count} × ${name}` : name;
  });
}
