// Approval rule for future calls: none, or a rule for this run or for all runs (divebook/engine/approvals.py).

import { EQUALS, RULE_FOR_ALL_RUNS, RULE_FOR_RUN } from "../constants";
import { h } from "../shared/dom";
import { makeForm, type Form } from "./form";
import { asSchema, isRecord, text } from "./schema";
import type { Question } from "./types";

const HOUR = 3600;
const EVERY_TIME = "Ask every time";
const CHOICES: Record<string, Record<string, unknown> | undefined> = {
  [EVERY_TIME]: undefined,
  "Allow them in this run": { scope: RULE_FOR_RUN },
  "Allow them in every run for an hour": { scope: RULE_FOR_ALL_RUNS, expires_in: HOUR },
  "Allow them in every run for a day": { scope: RULE_FOR_ALL_RUNS, expires_in: 24 * HOUR },
  "Allow them in every run for 30 days": { scope: RULE_FOR_ALL_RUNS, expires_in: 30 * 24 * HOUR },
};
const HINT = "Only calls with exactly these arguments match. In strings, * matches anything except /, and ** matches anything.";

/** Return the pattern that matches exactly this value. Values that would be read as a pattern are wrapped in `equals`. */
export function exactly(value: unknown): unknown {
  const isPattern = typeof value === "string" && value.includes("*");
  const isExact = isRecord(value) && Object.keys(value).join() === EQUALS;
  return isPattern || isExact ? { [EQUALS]: value } : value;
}

/** Form that asks how to treat future calls like the approved one. */
export class ApprovalRuleForm {
  readonly element = h("div", { class: "standing" });
  readonly #initialPatterns: string;
  readonly #choice: Form | undefined;
  readonly #patterns: Form | undefined;
  #areArgumentsEdited = false;

  constructor({ data }: Question, draft: unknown) {
    const exact = Object.fromEntries(Object.entries(asSchema(data["parameters"])).map(([name, value]) => [name, exactly(value)]));
    this.#initialPatterns = JSON.stringify(exact);
    if (!isRecord(data["offers"])) return;
    const { choice, patterns } = asSchema(draft);
    this.#choice = makeForm({ type: "string", title: "Calls like this one", enum: Object.keys(CHOICES) }, choice ?? EVERY_TIME);
    this.#patterns = makeForm({ title: "Arguments of these calls", description: HINT, type: "object" }, patterns ?? exact);
    this.element.append(this.#choice.element, this.#patterns.element);
    this.element.addEventListener("input", () => { this.#show(); });
    this.element.addEventListener("change", () => { this.#show(); });
    this.#show();
  }

  /** Return the chosen rule, or undefined. The patterns are added only if a person has changed them. */
  rule(): Record<string, unknown> | undefined {
    const rule = CHOICES[text(this.#choice?.value())];
    const patterns = this.#patterns?.value() ?? {};
    if (rule === undefined || this.#areArgumentsEdited) return rule;
    return JSON.stringify(patterns) === this.#initialPatterns ? rule : { ...rule, arguments: patterns };
  }

  check(): boolean {
    return this.rule() === undefined || this.#areArgumentsEdited || (this.#patterns?.check() ?? true);
  }

  /** Hide the patterns while the arguments themselves are edited: the rule then covers the edited arguments. */
  setArgumentsEdited(isEdited: boolean): void {
    this.#areArgumentsEdited = isEdited;
    this.#show();
  }

  draft(): unknown {
    return { choice: this.#choice?.value(), patterns: this.#patterns?.value() };
  }

  #show(): void {
    const hasRule = CHOICES[text(this.#choice?.value())] !== undefined;
    if (this.#patterns !== undefined) this.#patterns.element.hidden = !hasRule || this.#areArgumentsEdited;
  }
}
