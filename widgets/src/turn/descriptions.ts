// Short descriptions of calls and requests.

import { ASSIGN_WORK, DENIED_BY_RULE } from "../constants";
import type { ConversationCall, ConversationRequest } from "../protocol";
import { plural } from "../shared/format";
import { withoutSigns } from "../shared/markdown";
import { oneLine } from "../shared/text";
import { valueText } from "../shared/values";

const MAX_WIDTH = 200;

/** Return the arguments of a call on one line. A single string is shown without its name. */
export function argumentsText(callArguments: unknown, tool = ""): string {
  const isTable = typeof callArguments === "object" && callArguments !== null && !Array.isArray(callArguments);
  if (!isTable) return oneLine(valueText(callArguments, MAX_WIDTH), MAX_WIDTH);
  const entries = Object.entries(callArguments);
  const { agent, description } = callArguments as { agent?: unknown; description?: unknown };
  if (tool === ASSIGN_WORK && typeof agent === "string") return oneLine(`to ${agent}: ${valueText(description, MAX_WIDTH)}`, MAX_WIDTH);
  const [only] = entries;
  if (entries.length === 1 && only !== undefined && typeof only[1] === "string") return oneLine(only[1], MAX_WIDTH);
  return oneLine(entries.map(([name, value]) => `${name}=${valueText(value, MAX_WIDTH)}`).join("  "), MAX_WIDTH);
}

/** Return that a call was denied, by whom, and why. */
function denial({ result }: ConversationCall): string {
  const [, reason = ""] = /^[^:]*: (.*)$/s.exec(result) ?? [];
  const author = result.startsWith(DENIED_BY_RULE) ? "denied by a rule" : "denied";
  return reason === "" ? author : oneLine(`${author}: ${reason}`, 80);
}

const OUTCOMES = { failed: "failed", denied: "denied", retry: "retry requested", unknown: "outcome unknown", returned: "", "": "" } as const;

/** Return the outcome of a call: a short result itself, a long one by its size. */
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

/** Return the action of a request, for the list of requests: a single call with its arguments, several calls by name. */
export function requestSummary(request: ConversationRequest, isRunning: boolean, calls: readonly ConversationCall[]): string {
  const names = request.answer.filter(({ kind }) => kind === "call").map(({ text }) => text);
  const [only] = calls;
  if (names.length === 1 && only !== undefined) return oneLine(`${only.tool} ${argumentsText(only.arguments, only.tool)}`, 60);
  if (names.length > 0) return oneLine(withCounts(names).join(", "), 60);
  if (isRunning) return "writing …";
  const answer = request.answer.find(({ kind }) => kind === "assistant");
  if (answer === undefined) return "no answer";
  return request.output !== "" && /^[[{]/.test(answer.text) ? "answers with data" : oneLine(withoutSigns(answer.text.slice(0, 2_000)), 60);
}

/** Return each name once, with the number of its occurrences. */
function withCounts(names: readonly string[]): string[] {
  return [...new Set(names)].map((name) => {
    const count = names.filter((other) => other === name).length;
    return count > 1 ? `${count} × ${name}` : name;
  });
}
